#!/usr/bin/env python3
"""GPT-2's and Llama's weights go from Hugging Face's transformers to Troupe and back.

    hugging_face.py PROGRAM

For each small model of transformers': its save_pretrained() is imported by `troupe ckpt import --hugging-face`, and the loss of a
mini-batch is the same in both; what `troupe ckpt export --hugging-face` writes is what was imported, bit for bit. Exit status 4:
transformers, PyTorch or safetensors is not installed.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(4)

VOCABULARY, LENGTH, ROWS = 256, 24, 3
LLAMA = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "rms_norm_eps": 1e-5}
MODELS = {
    "gpt2": (
        "gpt { layers: 2 width: 32 heads: 4 }",
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4)
        ),
    ),
    "llama": (
        "llama { layers: 2 width: 32 heads: 4 hidden: 48 }",
        lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, num_attention_heads=4)),
    ),
    "llama, keys shared, tied": (
        "llama { layers: 2 width: 32 heads: 4 kv_heads: 2 hidden: 48 tied: true theta: 500 }",
        lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                **LLAMA,
                num_attention_heads=4,
                num_key_value_heads=2,
                tie_word_embeddings=True,
                rope_parameters={"rope_type": "default", "rope_theta": 500.0},
            )
        ),
    ),
    "mixtral": (
        "llama { layers: 2 width: 32 heads: 4 kv_heads: 2 hidden: 48 experts: 3 chosen: 2 theta: 1e6 }",
        lambda: transformers.MixtralForCausalLM(
            transformers.MixtralConfig(
                **LLAMA,
                num_attention_heads=4,
                num_key_value_heads=2,
                num_local_experts=3,
                num_experts_per_tok=2,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            )
        ),
    ),
}


def check_model(program, folder, name, model, make):
    def troupe(*arguments):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{name}: {' '.join(map(str, arguments))}\n{done.stderr}")

    torch.manual_seed(7)
    theirs = make().eval()
    with torch.no_grad():  # biases and gains that are 0 and 1 would be the same anywhere
        for p in theirs.parameters():
            p.add_(0.1 * torch.randn_like(p))
    theirs.save_pretrained(folder / "theirs")
    saved = load_file(folder / "theirs/model.safetensors")
    (folder / "text").write_bytes(random.Random(3).randbytes(2000))
    experiment = folder / "experiment.textproto"
    experiment.write_text(
        f"model {{ {model} }} data {{ batch_size: {ROWS} text {{ path: '{folder}/text' context: {LENGTH} "
        "vocabulary { bytes {} } } } optimizer { rule: sgd learning_rate: 0.001 } stop { updates: 1 } "
        "record { every: 1 evaluate: false gap_every: 0 order: false }"
    )
    troupe("ckpt", "import", "--hugging-face", folder / "theirs/model.safetensors", experiment, folder / "ours.safetensors")
    troupe("data", "batches", experiment, 1, folder / "batch.safetensors")
    start = f"start_from={folder}/ours.safetensors"
    troupe("sim", experiment, "--quiet", "--set", start, "--out", folder / "run")
    lines = map(json.loads, (folder / "run/metrics.jsonl").read_text().splitlines())
    loss = next(line["loss"] for line in lines if line["kind"] == "train")
    batch = load_file(folder / "batch.safetensors")
    with torch.no_grad():
        if name != "mixtral":  # whose products of experts are not there in double
            theirs = theirs.double()
        logits = theirs(batch["x"][0].long()).logits
    wanted = float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["target"][0].flatten().long()))
    print(f"{name}: {loss:.7f}, transformers {wanted:.7f}")
    if abs(loss - wanted) > 3e-6 * wanted:
        raise SystemExit(f"{name}: the losses differ")
    troupe("ckpt", "export", "--hugging-face", folder / "ours.safetensors", folder / "back.safetensors")
    back = load_file(folder / "back.safetensors")
    if back.keys() != saved.keys() or not all(torch.equal(back[key], saved[key].float()) for key in saved):
        raise SystemExit(f"{name}: what comes back is not what went: {sorted(back.keys() ^ saved.keys())}")


def main():
    torch.set_num_threads(1)
    for name, (model, make) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            check_model(sys.argv[1], Path(folder), name, model, make)


if __name__ == "__main__":
    main()
