"""Networks of torch modules beside a plain PyTorch loop with the same data, order and initial weights."""

import copy
import ctypes
import os

import numpy as np
import pytest
from conftest import FLUSHED

import troupe

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
from troupe import _troupe  # noqa: E402
from troupe.torch import Network, from_torch  # noqa: E402

torch.set_num_threads(1)
BATCH, STEPS, RATE = 20, 50, 0.01
SETS = {"data.batch_size": BATCH, "optimizer.rule": "momentum", "optimizer.learning_rate": RATE, "optimizer.momentum": 0.9,
        "stop.updates": STEPS, "record.every": 1, "record.gap_every": 0, "record.evaluate_every": 10**9}
FLUSHED_FOUR = {**FLUSHED, "pipeline.stages": 4}
random = np.random.default_rng(0)


def images(n=300):
    y = random.integers(0, 10, n).astype(np.int32)
    centres = np.random.default_rng(5).normal(size=(10, 3, 8, 8))
    return (0.5 * centres[y] + random.normal(size=(n, 3, 8, 8))).astype(np.float32), y


def texts(n=300, length=12):
    x = np.cumsum(random.integers(0, 3, (n, length + 1)), axis=1) % 20
    return x[:, :-1].astype(np.int32), x[:, 1:].astype(np.int32)


def block(i, o, p=0.0):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Dropout(p))


def conv():
    return [block(3, 8), block(8, 8), nn.MaxPool2d(2), nn.Hardtanh(0.1, 0.9, inplace=True), nn.Sequential(nn.Flatten(), nn.Linear(128, 10))]


class Attention(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Embedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, width), nn.Parameter(0.02 * torch.randn(12, width))

    def forward(self, x):
        return self.tokens(x) + self.places


def transformer():
    return [Embedding(16), Attention(16), Attention(16), nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 20))]


def tied():
    """The last module's matrix is the table of the first."""
    first, last = Embedding(16), nn.Linear(16, 20, bias=False)
    nn.init.normal_(first.tokens.weight, std=0.1)  # as tables that are read at both ends begin
    last.weight = first.tokens.weight
    return [first, Attention(16), nn.LayerNorm(16), last]


class Recurrent(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lstm = nn.LSTM(i, o, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def lstm():
    return [Embedding(16), Recurrent(16, 12), Recurrent(12, 12), nn.Linear(12, 20)]


def begun_anew():
    """A module whose frozen parameters begin otherwise in each process."""
    frozen = nn.Linear(16, 16).requires_grad_(False)
    frozen.weight.copy_(torch.from_numpy(np.random.default_rng().normal(size=(16, 16))))
    return nn.Sequential(frozen, nn.Tanh(), nn.Linear(16, 16))


NETWORK_OF_ALL, DATA_OF_ALL = Network(*conv()), troupe.arrays(*images())  # other processes import them
FROZEN_OF_ALL = Network(Embedding(16), *(begun_anew() for _ in range(3)), nn.Linear(16, 20))
TEXTS_OF_ALL = troupe.arrays(*texts())

KINDS = {"conv": (conv, images), "transformer": (transformer, texts), "tied": (tied, texts), "lstm": (lstm, texts)}


def plain(modules, x, y, steps=STEPS):
    """-> losses, and the net."""
    whole = modules if isinstance(modules, nn.Module) else nn.Sequential(*modules)
    net = copy.deepcopy(whole).train()  # what is tied stays so within one copy
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9)
    x, y, losses = torch.from_numpy(x), torch.from_numpy(y).long(), []
    for batch in range(steps):
        of = torch.from_numpy(_troupe.batch_order(len(x), BATCH, 1, batch))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x[of]).flatten(0, y.dim() - 1), y[of].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses), net


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    torch.manual_seed(1)
    make, data = KINDS[request.param]
    x, y = data()
    modules = make()
    return modules, troupe.arrays(x, y, x[:40], y[:40]), *plain(modules, x, y)


@pytest.mark.parametrize("schedule", ["one_f_one_b", "gpipe", "zb_h1"])
def test_a_flushed_schedule_is_the_plain_loop(kind, schedule):
    modules, data, losses, net = kind
    run = troupe.sim("teacher-mlp", {**SETS, **FLUSHED_FOUR, "pipeline.schedule": schedule}, data=data,
                     network=Network(*modules))
    assert np.abs(run.losses - losses).max() < 1e-6
    for name, tensor in net.state_dict().items():
        if name in run.weights:
            assert np.abs(run.weights[name] - tensor.numpy()).max() < 1e-5, name


class Language(nn.Module):
    """As people write them: blocks in a list, a table that is read at both ends, a loop."""

    def __init__(self):
        super().__init__()
        self.embedding, self.blocks, self.norm = Embedding(16), nn.ModuleList([Attention(16), Attention(16)]), nn.LayerNorm(16)
        self.head = nn.Linear(16, 20, bias=False)
        nn.init.normal_(self.embedding.tokens.weight, std=0.1)
        self.head.weight = self.embedding.tokens.weight

    def forward(self, x):
        x = self.embedding(x)
        for each in self.blocks:
            x = each(x)
        return self.head(self.norm(x))


class Residual(nn.Module):
    """Blocks with a way around each."""

    def __init__(self):
        super().__init__()
        self.first, self.a, self.b, self.head = block(3, 8), block(8, 8), block(8, 8), nn.Linear(512, 10)

    def forward(self, x):
        x = self.first(x)
        x = F.relu(x + self.a(x))
        x = x + self.b(x)
        return self.head(x.flatten(1))


class Sparing(Residual):
    """What it drops by functions depends on self.training."""

    share = 0.0

    def forward(self, x):
        x = F.dropout(self.first(x), self.share, self.training)
        x = x + self.a(x) * (2.0 if self.training else 1.5)
        return self.head(F.dropout(x, self.share if self.training else 0.0).flatten(1))


WHOLE = {"sequential": (lambda: nn.Sequential(*conv()), images, None, ["0", "1", "2", "3", "4"]),
         "residual": (Residual, images, None, ["first", "head"]), "sparing": (Sparing, images, ["dropout"], ["dropout", "end"]), "by node": (Residual, images, ["first", "relu"], None),
         "language": (Language, texts, ["embedding", "blocks.0", "blocks.1"], ["embedding", "blocks.0", "blocks.1", "end"])}


@pytest.mark.parametrize("which", WHOLE)
def test_a_module_as_it_is_is_the_plain_loop(which):
    torch.manual_seed(2)
    make, data, cut, names = WHOLE[which]
    net, (x, y) = make(), data()
    network = from_torch(net, torch.from_numpy(x[:2]), cut)
    assert names is None or network.names == names
    losses, trained = plain(net, x, y)
    run = troupe.sim("teacher-mlp", {**SETS, **FLUSHED, "pipeline.stages": 2}, data=troupe.arrays(x, y, x[:40], y[:40]),
                     network=network)
    assert np.abs(run.losses - losses).max() < 1e-6
    assert set(run.weights) <= set(net.state_dict())
    network.load(run.weights)
    for name, tensor in trained.state_dict().items():
        if tensor.is_floating_point():
            assert torch.allclose(net.state_dict()[name], tensor, atol=1e-5), name


def rounded_as_ours(net, x, target):
    """Trains it on target values by a loop whose updates are rounded as Troupe's are: twice, and torch's SGD once."""
    net.train()
    velocity = [np.zeros(p.shape, np.float32) for p in net.parameters()]
    for batch in range(STEPS):
        of = torch.from_numpy(_troupe.batch_order(len(x), BATCH, 1, batch))
        net.zero_grad()
        out = net(torch.from_numpy(x)[of])
        out.backward((out.detach() - torch.from_numpy(target)[of]) * np.float32(1 / BATCH))
        for p, v in zip(net.parameters(), velocity):
            v[:] = np.float32(0.9) * v + p.grad.numpy()
            p.detach().copy_(torch.from_numpy(p.detach().numpy() - np.float32(RATE) * v))


def test_a_resnet_of_torchvision_is_the_plain_loop_to_the_bit():
    """Batch norm of 20 samples multiplies a rounding by ten each few updates: torch's own loop with torch's SGD, whose update
    rounds once where ours rounds twice, is far from the loop below after five. So that one rounds as ours do."""
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(3)
    net, (x, y) = torchvision.models.resnet18(num_classes=10), images()
    target = np.eye(10, dtype=np.float32)[y]
    network = from_torch(net, torch.from_numpy(x[:2]))
    assert network.names == ["conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool", "fc"]
    run = troupe.sim("teacher-mlp", {**SETS, **FLUSHED_FOUR}, data=troupe.arrays(x, target, x[:40], target[:40]), network=network)
    rounded_as_ours(net, x, target)
    assert run.losses[-1] < 0.5 * run.losses[0]
    for name, tensor in net.state_dict().items():
        if tensor.is_floating_point():
            assert np.array_equal(run.weights[name], tensor.numpy()), name


class Branches(Residual):
    def forward(self, x):
        x = self.first(x)
        return self.head((self.a(x) + x * self.b(x)).flatten(1))


class Depends(Residual):
    def forward(self, x):
        return super().forward(x * 2 if self.training else x)


class DependsOnATensor(Residual):
    def forward(self, x):
        mean = x.mean()
        return super().forward(x * (mean if self.training else 1.0))


class DependsOnAnother(Residual):
    def forward(self, x):
        one, other = x + 1, x + 2
        return super().forward(one if self.training else other)


class DependsOnAWord(Residual):
    def forward(self, x):
        return super().forward(F.pad(x, (1, 1, 1, 1), "reflect" if self.training else "replicate"))


class Several(Residual):
    def forward(self, x):
        return super().forward(x), x


class Decides(Residual):
    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


@pytest.mark.parametrize("make, cut, sentence", [
    (Branches, ["a"], "behind 'a' 2 tensors go on"), (Branches, ["c"], "nothing of the module's graph is called 'c'"),
    (Depends, None, "other operations when it is evaluated"), (Decides, None, "cannot trace Decides"),
    (DependsOnATensor, None, "mul takes 1.0 when the module is evaluated and mean when it is trained"),
    (DependsOnAnother, None, "takes add_1 when the module is evaluated and add when"),
    (DependsOnAWord, None, "takes 'replicate' when the module is evaluated"),
    (Several, None, "gives several tensors"), (lambda: nn.LSTM(4, 4), None, "cannot trace LSTM")])
def test_what_is_no_chain_of_layers_is_refused(make, cut, sentence):
    with pytest.raises(troupe.UsageError, match=sentence):
        from_torch(make(), torch.zeros(2, 3, 8, 8), cut)


@pytest.mark.parametrize("weights", ["stash", "spectrain", "latest"])
def test_both_clocks_have_the_same_bits(kind, weights):
    modules, data, *_ = kind
    how = {**SETS, "pipeline.stages": 4, "pipeline.schedule": "async_one_f_one_b", "pipeline.weights": weights,
           "stop.updates": 15}
    runs = [train("teacher-mlp", how, data=data, network=Network(*modules)) for train in (troupe.sim, troupe.run)]
    assert runs[0].sha256 == runs[1].sha256
    if weights != "latest":  # whose backwards read other weights than their forwards did
        again = {**how, "pipeline.activations": "recompute"}
        assert runs[0].sha256 == troupe.sim("teacher-mlp", again, data=data, network=Network(*modules)).sha256


class Drawing(nn.Module):
    """A module that draws by a function of torch."""

    def __init__(self, draw):
        super().__init__()
        self.draw, self.linear = draw, nn.Linear(16, 16)

    def forward(self, x):
        return self.draw(self.linear(x), self.training)


class Grouped(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True, dropout=share)

    def forward(self, x):
        return self.lstm(x)[0]


def dropped_and_fixed(x, share, training):
    fixed = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(3))  # stays as it is
    return F.dropout(x, share, training) + fixed


DRAWS = {"functional": lambda p: Drawing(lambda x, training: F.dropout(x, p, training)),
         "attention": lambda p: Drawing(lambda x, training: F.scaled_dot_product_attention(x, x, x, dropout_p=p if training else 0)),
         "noise": lambda p: Drawing(lambda x, training: x + p * torch.randn_like(x)),
         "beside a generator": lambda p: Drawing(lambda x, training: dropped_and_fixed(x, p, training)),
         "encoder": lambda p: nn.TransformerEncoderLayer(16, 2, 32, p, batch_first=True), "lstm": Grouped}


def draws_something(run, still):
    """Far beyond 1e-6, by which roundings may differ."""
    return np.abs(run.losses - still.losses).max() > 1e-3


def test_a_module_that_drops_by_functions_is_cut():
    torch.manual_seed(9)
    net, (x, y) = Sparing(), images()
    net.share = 0.3
    how = {**SETS, "pipeline.stages": 2, "stop.updates": 15}
    network = from_torch(net, torch.from_numpy(x[:2]))
    data = troupe.arrays(x, y, x[:40], y[:40])
    runs = [train("teacher-mlp", how, data=data, network=network) for train in (troupe.sim, troupe.run)]
    assert runs[0].sha256 == runs[1].sha256
    net.share = 0.0
    assert draws_something(runs[0], troupe.sim("teacher-mlp", how, data=data, network=from_torch(net, torch.from_numpy(x[:2]))))
    network.load(runs[0].weights)
    with torch.no_grad():
        right = (net.eval()(torch.from_numpy(x[:40])).argmax(1).numpy() == y[:40]).mean()
    assert right == pytest.approx(runs[0].summary["test_accuracy"], abs=1e-6)


@pytest.mark.parametrize("which", ["dropout", *DRAWS])
def test_what_operations_draw_is_keyed_by_sample(which):
    def made(share):
        torch.manual_seed(4)
        if which == "dropout":
            return [block(3, 8, share), block(8, 8, share), nn.Sequential(nn.Flatten(), nn.Linear(512, 10))]
        return [Embedding(16), DRAWS[which](share), nn.Linear(16, 20)]

    (x, y), modules = images() if which == "dropout" else texts(), made(0.5 if which == "dropout" else 0.3)
    how = {**SETS, "pipeline.stages": 3, "stop.updates": 15}
    before = torch.get_rng_state()
    runs = [train("teacher-mlp", {**how, **more}, data=(x, y), network=Network(*modules))
            for train, more in ((troupe.sim, {}), (troupe.run, {}), (troupe.run, {"pipeline.activations": "recompute"}))]
    weights = {run.sha256 for run in runs}
    assert len(weights) == 1 and torch.equal(before, torch.get_rng_state())
    assert {troupe.sim("teacher-mlp", {**how, "seed": 2}, data=(x, y), network=Network(*modules)).sha256} != weights
    assert draws_something(runs[0], troupe.sim("teacher-mlp", how, data=(x, y), network=Network(*made(0.0))))


def test_what_draws_by_no_generator_is_refused(fails):
    network = Network(Embedding(16), Drawing(lambda x, training: torch.native_dropout(x, 0.3, training)[0]), nn.Linear(16, 20))
    assert "cannot be keyed by sample" in fails(
        troupe.UsageError, lambda: troupe.sim("teacher-mlp", {**SETS, "pipeline.stages": 3}, data=texts(), network=network),
        troupe.UsageError)


def test_buffers_of_any_type_come_along(tmp_path):
    """Batch norm's mean of all batches needs their number."""
    torch.manual_seed(5)
    modules = [nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=None), nn.ReLU()),
               nn.Sequential(nn.Flatten(), nn.Linear(512, 10))]
    x, y = images()
    _, net = plain(modules, x, y, 20)
    how = {**SETS, **FLUSHED, "pipeline.stages": 2, "stop.updates": 20}
    network, data = Network(*modules), troupe.arrays(x, y, x[:40], y[:40])
    run = troupe.sim("teacher-mlp", how, data=data, network=network, record={"checkpoint": {"every": 5, "keep": 9}}, out=tmp_path)
    assert troupe.resume(tmp_path / "checkpoints" / "step-10").sha256 == run.sha256
    network.load(run.weights)
    trained = nn.Sequential(*modules).state_dict()
    assert trained["0.1.num_batches_tracked"].dtype == torch.int64
    for name, tensor in net.state_dict().items():
        assert torch.allclose(trained[name], tensor, atol=1e-5), name


def test_frozen_parameters_stay_as_they_are():
    torch.manual_seed(8)
    modules = [nn.Sequential(nn.Flatten(), nn.Linear(192, 16).requires_grad_(False)), nn.Sequential(nn.Tanh(), nn.Linear(16, 10))]
    modules[1][1].bias.requires_grad_(False)
    x, y = images()
    losses, net = plain(modules, x, y)
    before = {name: tensor.numpy().copy() for name, tensor in nn.Sequential(*modules).state_dict().items()}
    run = troupe.run("teacher-mlp", {**SETS, **FLUSHED, "pipeline.stages": 2}, data=troupe.arrays(x, y, x[:40], y[:40]),
                     network=Network(*modules))
    assert np.abs(run.losses - losses).max() < 1e-6
    for name, weights in before.items():
        assert np.array_equal(run.weights[name], weights) == (name != "1.1.weight"), name


def test_a_frozen_table_is_read_at_both_ends():
    torch.manual_seed(10)
    modules = tied()
    table = modules[0].tokens.weight.requires_grad_(False)
    x, y = texts()
    losses, _ = plain(modules, x, y)
    how, data = {**SETS, **FLUSHED_FOUR}, troupe.arrays(x, y, x[:40], y[:40])
    run = troupe.run("teacher-mlp", how, data=data, network=Network(*modules))
    assert np.abs(run.losses - losses).max() < 1e-6
    for name in ("0.tokens.weight", "3.weight"):
        assert np.array_equal(run.weights[name], table.numpy()), name
    net = nn.Sequential(*modules)  # and a module as it is, where both are called as in its state_dict()
    assert troupe.sim("teacher-mlp", how, data=data, network=from_torch(net, torch.from_numpy(x[:2]))).sha256 == run.sha256


class Folds(nn.Module):
    def forward(self, x):
        return x[:, None, None]


class Slips(nn.Linear):
    def __init__(self, last):
        super().__init__(192, 10)
        self.last = last

    def forward(self, x):
        return self.last(super().forward(x.flatten(1)))


@pytest.mark.parametrize("make, sentence", [
    (lambda: Network(nn.LSTM(8, 8, batch_first=True), nn.Flatten()), "module 0 gives a tuple; a layer gives one tensor"),
    (lambda: Network(nn.Identity(), Folds(), nn.Flatten()), "gives a Tensor of 6 dimensions"),
    (lambda: Network(*[nn.BatchNorm2d(3)] * 2, nn.Flatten()), "module 1 has the buffer '0.running_mean' of another one"),
    (lambda: Network(nn.Flatten(), loss=nn.AdaptiveLogSoftmaxWithLoss(192, 10, [5])), "loss: it has parameters of its own"),
    (lambda: Network(nn.Flatten(), nn.LazyLinear(10)), "lazy module"),
    (lambda: Network(nn.Flatten), "Flatten'> has not been made"),
    (lambda: nn.Linear(192, 10), "a Linear is no troupe.torch.Network"),
    (lambda: Network(nn.Flatten(), nn.Linear(192, 10, device="meta")), "weight is on meta"),
    (lambda: Network(nn.Flatten(), nn.Linear(192, 10).double()), "float64, and what is trained is float32"),
    (lambda: Network(nn.Flatten(), nn.Linear(3, 10)), r"module 1 does not take samples of \(192,\): RuntimeError"),
    (lambda: Network(nn.Flatten(), nn.Linear(192, 9)), r"gives \(9,\) for a sample, and the data's targets want 10"),
    (lambda: Network(Slips(lambda y: y[0])), "gives 10 rows for 2 samples"),
    (lambda: Network(Slips(lambda y: y.detach())), r"has no_grad\(\) or detach"),
    (lambda: Network(nn.Flatten(), nn.AdaptiveAvgPool1d(10)), "none of the network's modules has a parameter")])
def test_what_is_no_layer_is_refused(make, sentence):
    x, y = images()
    with pytest.raises(troupe.UsageError, match=sentence):
        troupe.sim("teacher-mlp", {**SETS, **FLUSHED}, data=(x[:, 0] if "tuple" in sentence else x, y), network=make())


def test_weights_of_another_network_are_not_loaded(fails):
    for weights in ({}, {"0.weight": np.zeros((3, 2), np.float32)}):
        assert "these weights have no 0.weight of (2, 2)" in fails(troupe.UsageError, lambda: Network(nn.Linear(2, 2)).load(weights))


class Halved(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.module(x)


def test_autocast_within_modules_is_that_of_the_plain_loop_to_the_bit():
    """Where a rounding of float32 turns one of bfloat16, that is a different run: so the updates are rounded alike."""
    torch.manual_seed(6)
    modules = [Halved(nn.Linear(6, 32)), nn.Tanh(), Halved(nn.Linear(32, 32)), nn.Sequential(nn.Tanh(), nn.Linear(32, 2))]
    x = np.random.default_rng(6).normal(size=(300, 6)).astype(np.float32)
    target = np.stack([x.sum(1), x[:, 0]], 1)
    assert modules[0](torch.from_numpy(x)).dtype == torch.bfloat16
    data, how = troupe.arrays(x, target, x[:40], target[:40]), {**SETS, **FLUSHED_FOUR}
    runs = [train("teacher-mlp", how, data=data, network=Network(*modules)) for train in (troupe.sim, troupe.run)]
    assert runs[0].losses[-10:].mean() < 0.5 * runs[0].losses[:10].mean()

    class Widened(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x).float()

    net = nn.Sequential(*map(Widened, modules))
    rounded_as_ours(net, x, target)
    for name, tensor in net.state_dict().items():
        for run in runs:
            assert np.array_equal(run.weights[name.replace(".module", "", 1)], tensor.numpy()), name


def test_a_loss_of_ones_own(fails):
    torch.manual_seed(7)
    x, y = texts()
    modules, data = transformer(), troupe.arrays(x, y, x[:40], y[:40])

    def entropy(outputs, targets):
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    how = {**SETS, **FLUSHED_FOUR, "record.evaluate_every": 10}
    theirs = troupe.sim("teacher-mlp", how, data=data, network=Network(*modules))
    own = troupe.sim("teacher-mlp", how, data=data, network=Network(*modules, loss=entropy))
    assert np.abs(own.losses - theirs.losses).max() < 1e-6
    assert own.summary["test_accuracy"] == theirs.summary["test_accuracy"]
    assert own.sha256 == troupe.run("teacher-mlp", how, data=data, network=Network(*modules, loss=entropy)).sha256
    values = x[:, :6].astype(np.float32)
    wide = Network(nn.Linear(6, 8), nn.Linear(8, 4), loss=lambda outputs, targets: F.huber_loss(outputs[:, :2] + outputs[:, 2:], targets))
    run = troupe.sim("teacher-mlp", {**SETS, **FLUSHED}, data=(values, values[:, :2] * 0.1), network=wide)  # of any shape
    assert run.losses[-10:].mean() < 0.5 * run.losses[:10].mean()
    assert "a loss of its own" in fails(troupe.UsageError, lambda: troupe.sim(
        "teacher-mlp", {**how, "model.label_smoothing": 0.1}, data=data, network=Network(*modules, loss=entropy)))
    assert "loss: TypeError: it returned no tensor of one number" in fails(troupe.Lost, lambda: troupe.sim(
        "teacher-mlp", how, data=data, network=Network(*modules, loss=lambda *_: 1.0)), TypeError)
    assert "loss: ZeroDivisionError" in fails(troupe.Lost, lambda: troupe.sim(
        "teacher-mlp", how, data=data, network=Network(*modules, loss=lambda *_: 1 / 0)), ZeroDivisionError)


def test_other_processes_import_the_modules_of_networks_and_data(fails):
    how = {**SETS, "pipeline.stages": 3, "stop.updates": 15}
    given = {"data": DATA_OF_ALL, "network": NETWORK_OF_ALL}
    assert troupe.run("teacher-mlp", how, **given, processes=2).sha256 == troupe.sim("teacher-mlp", how, **given).sha256
    how, given = {**how, "pipeline.stages": 4, "pipeline.weights": "latest"}, {"data": TEXTS_OF_ALL, "network": FROZEN_OF_ALL}
    assert troupe.run("teacher-mlp", how, **given, processes=2).sha256 == troupe.sim("teacher-mlp", how, **given).sha256
    assert "the network is known to this process alone" in fails(troupe.UsageError, lambda: troupe.run(
        "teacher-mlp", how, data=DATA_OF_ALL, network=Network(*conv()), processes=2))


def test_threads_of_the_runtime_compute_with_as_many_threads_as_torch_is_told(kind):
    paths = {line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}
    if len(paths) != 1 or os.cpu_count() == 1:
        pytest.skip("which OpenMP PyTorch has is not known, or there is one processor")
    openmp = ctypes.CDLL(paths.pop())
    seen = []

    class Asks(nn.Module):
        def forward(self, x):
            seen.append(openmp.omp_get_max_threads())
            return x

    modules, data, *_ = kind
    how = {**SETS, "pipeline.stages": 4, "stop.updates": 8}
    ends = nn.Sequential(modules[0], Asks()), nn.Sequential(Asks(), modules[-1])
    troupe.run("teacher-mlp", how, data=data, network=Network(ends[0], *modules[1:-1], ends[1]))
    assert set(seen) == {1}


def test_runs_have_the_bits_of_the_clock_with_several_threads_of_torch(tmp_path):
    x, y = images()
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.BatchNorm1d(16), nn.ReLU()), nn.Linear(16, 10))
    how = {**SETS, "pipeline.stages": 2, "pipeline.schedule": "async_one_f_one_b", "pipeline.weights": "stash", "stop.updates": 20}
    torch.set_num_threads(2)
    try:
        run = troupe.run("teacher-mlp", how, data=troupe.arrays(x, y, x, y), network=network, out=tmp_path / "run")
        assert torch.get_num_threads() == 2
        assert troupe.sim("teacher-mlp", how, data=troupe.arrays(x, y, x, y), network=network).sha256 == run.sha256
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_what_a_run_had_of_python_may_be_made_anew(tmp_path, fails):
    x, y = images()

    def made():
        torch.manual_seed(2)
        return {"data": troupe.arrays(x, y, x, y), "network": Network(*conv())}

    folder = tmp_path / "run"
    how = {**SETS, "pipeline.stages": 2, "pipeline.schedule": "async_one_f_one_b", "pipeline.weights": "stash",
           "pipeline.activations": "recompute", "record.checkpoint.every": 10, "record.checkpoint.keep": 9}
    troupe.run("teacher-mlp", how, **made(), out=folder)
    whole = troupe.sim("teacher-mlp", how, **made(), out=tmp_path / "sim")
    assert "made anew: network=..." in fails(troupe.UsageError, lambda: troupe.replay(folder, data=made()["data"]), LookupError)
    assert "equal" in troupe.replay(folder, **made())
    again = made()
    ids = again["data"].id, again["network"].id
    longer = troupe.resume(tmp_path / "sim", {"stop.updates": STEPS + 10}, **again)
    assert longer.summary["updates"] == STEPS + 10 and longer.folder != tmp_path / "sim"
    assert troupe.resume(tmp_path / "sim" / "checkpoints" / "step-20", **again).sha256 == whole.sha256
    assert ids == (again["data"].id, again["network"].id)
    troupe.sim("teacher-mlp", {"stop.updates": 5}, out=tmp_path / "ours")
    assert "is not of Python" in fails(troupe.UsageError, lambda: troupe.resume(tmp_path / "ours", **made()))


def test_operations_are_counted_without_a_say_in_other_threads():
    seen = []

    class Looking(nn.Module):
        def forward(self, x):
            seen.append(len(nn.modules.module._global_forward_pre_hooks))
            return x

    modules = [nn.Sequential(Looking(), *conv()), nn.Sequential(Attention(8))]
    shapes = [(3, 8, 8), (5, 8)]
    for module, shape, outputs in zip(modules, shapes, (10, 8)):
        with torch.no_grad(), torch.utils.flop_counter.FlopCounterMode(display=False) as counted:
            module(torch.zeros(2, *shape))
        seen.clear()
        assert Network(module).layers(shape, outputs)[0].flops == counted.get_total_flops() / 2 > 0
        assert not any(seen)


def test_trained_weights_go_back_into_the_modules():
    x, y = images()
    modules = conv()
    network = Network(*modules)
    run = troupe.sim("teacher-mlp", {**SETS, "stop.updates": 15}, data=troupe.arrays(x, y, x, y), network=network)
    network.load(run.weights)
    net = nn.Sequential(*modules).eval()
    with torch.no_grad():
        right = (net(torch.from_numpy(x)).argmax(1).numpy() == y).mean()
    assert right == pytest.approx(run.summary["test_accuracy"], abs=1e-6)
    again = troupe.sim("teacher-mlp", {**SETS, "stop.updates": 1}, data=troupe.arrays(x, y, x, y), network=network)
    assert again.losses[0] < run.losses[0]  # it begins with them


def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    x, y = images()
    how = {**SETS, "pipeline.stages": 1, "stop.updates": 20, **FLUSHED}
    data, network = troupe.arrays(x, y), Network(*conv())
    whole = troupe.sim("teacher-mlp", how, data=data, network=network)
    troupe.sim("teacher-mlp", how, data=data, network=network, record={"checkpoint": {"every": 5, "keep": 9}}, out=tmp_path)
    assert troupe.resume(tmp_path / "checkpoints" / "step-10").sha256 == whole.sha256


def test_an_exception_in_a_module_is_the_cause(fails):
    class Fails(nn.Module):
        def forward(self, x):
            if self.training and len(x) > 2:
                raise MemoryError("as it was to")
            return x

    x, y = images()
    assert "1.forward: MemoryError" in fails(
        troupe.Lost, lambda: troupe.run("teacher-mlp", {**SETS, "pipeline.stages": 3}, data=(x, y), network=Network(
            block(3, 8), Fails(), nn.Sequential(nn.Flatten(), nn.Linear(512, 10)))), MemoryError)


class Lent:
    """Memory as the runtime lends a GPU's: it speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("which", KINDS)
def test_layers_compute_alike_on_memory_that_is_not_numpys(which):
    torch.manual_seed(8)
    make, data = KINDS[which]
    x = data()[0][:6]

    def calls(kind):
        """All that the layers give back, of a network that is made anew."""
        def lent(arrays):
            return [kind(a) for a in arrays]

        made, given = [], x
        for layer, parameters, buffers in zip(network.layers(x.shape[1:], 10 if which == "conv" else 20), weights, states):
            y, kept, _ = layer.forward(lent(parameters), lent(buffers), kind(given), True, 1, 0, None)
            made += [y, layer.forward(lent(parameters), lent(buffers), kind(given), False, 1, 0, None)[0]]
            for same in (True, False):
                dx, gradients = layer.backward(kept, lent(parameters), kind(np.ones_like(y)), given.dtype == np.float32, same, None)
                made += [*([dx] if dx is not None else []), *layer.gradients(gradients)]
                y, kept, after = layer.forward(lent(parameters), lent(buffers), kind(given), True, 1, 0, None)
            made += after
            given = y
        return made

    network = Network(*make())
    layers = network.layers(x.shape[1:], 10 if which == "conv" else 20)
    weights = [[random.normal(size=shape).astype(np.float32) * 0.1 for _, shape, _ in layer.parameters] for layer in layers]
    states = [[np.ones(shape, np.float32) for _, shape, _ in layer.buffers] for layer in layers]
    ours, others = calls(np.asarray), calls(Lent)
    assert len(ours) == len(others) > len(layers)
    for one, other in zip(ours, others):
        assert np.array_equal(np.asarray(one), np.asarray(other))
