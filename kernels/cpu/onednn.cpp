#include "kernels/cpu/onednn.hpp"

#include "kernels/check.hpp"
#include "kernels/convert.hpp"
#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/scratch_guard.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <limits>
#include <string>
#include <unordered_map>

// Of the OpenMP runtime that oneDNN was linked with, GNU's. <omp.h> is of the compiler's runtime,
// which under Clang is another one.
extern "C" void omp_set_num_threads(int threads);

namespace troupe::cpu {

namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
constexpr auto kFloat = dnnl::memory::data_type::f32;

// -- the two versions of the interface ------------------------------------------------

// The description of Op's primitive, `of` these parts; a gradient's also follows from its forward's.

#if DNNL_VERSION_MAJOR >= 3

template <class Op, class... Parts>
typename Op::primitive_desc described(const dnnl::engine& engine,
                                      const dnnl::primitive_attr& attributes,
                                      const Parts&... of) {
  return {engine, of..., attributes};
}

template <class Op, class Forward, class... Parts>
typename Op::primitive_desc gradient_described(const dnnl::engine& engine,
                                               const dnnl::primitive_attr& attributes,
                                               const Forward& forward,
                                               const Parts&... of) {
  return {engine, of..., forward, attributes};
}

#else

template <class Op, class... Parts>
typename Op::primitive_desc described(const dnnl::engine& engine,
                                      const dnnl::primitive_attr& attributes,
                                      const Parts&... of) {
  return {typename Op::desc(of...), attributes, engine};
}

template <class Op, class Forward, class... Parts>
typename Op::primitive_desc gradient_described(const dnnl::engine& engine,
                                               const dnnl::primitive_attr& attributes,
                                               const Forward& forward,
                                               const Parts&... of) {
  return {typename Op::desc(of...), attributes, engine, forward};
}

#endif

// -- keys and compiled primitives --------------------------------------------------------

enum class Pass : std::int64_t { matmul, forward, input_gradient, weight_gradient };

using Key = std::array<std::int64_t, 12>;

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t h = 0;
    for (const std::int64_t part : key) {
      h = (h ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15ull;
      h ^= h >> 29;
    }
    return static_cast<std::size_t>(h);
  }
};

Key key_of(const MatmulPlan& p) {
  const int flags =
      p.transpose_a * 1 + p.transpose_b * 2 + p.accumulate * 4 + p.bias * 8 + p.bfloat16 * 16;
  return {static_cast<std::int64_t>(Pass::matmul), p.rows, p.columns, p.inner, flags};
}

Key key_of(Pass pass, const ConvolutionPlan& p) {
  return {static_cast<std::int64_t>(pass),
          p.batch,
          p.height,
          p.width,
          p.channels_in,
          p.channels_out,
          p.height_out,
          p.width_out,
          p.kernel,
          p.stride,
          p.padding};
}

/// Where one oneDNN argument comes from: the arguments' data are set at each run, the map is built
/// once.
struct Compiled {
  std::string name;  // the operation, its shape, and oneDNN's implementation
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
  std::size_t scratchpad_bytes = 0;

  // Where the primitive wants the weights in another layout than (O, kernel, kernel, C): they are
  // copied before the run (forward, input gradient) or after it (weight gradient).
  dnnl::reorder reorder;
  dnnl::memory plain_weights;  // (O, kernel, kernel, C)
  std::size_t weight_bytes = 0;
  bool reorders = false;
};

constexpr std::size_t kAlignment = 64;
constexpr std::int64_t kLargestVector = 16;  // floats

std::size_t aligned(std::size_t size_bytes) {
  return (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Compiled::name. Throws ContractError on "ref", up to 300 times slower, to which descriptors fall silently that no
/// compiled implementation accepts; on aarch64 the library, as Debian has it, has little else.
std::string accepted(const std::string& implementation,
                     double multiplications,
                     const std::string& what) {
#ifdef __aarch64__
  constexpr double kTiny = std::numeric_limits<double>::infinity();
#else
  constexpr double kTiny = 1 << 20;
#endif
  TROUPE_CHECK(multiplications <= kTiny || implementation.find("ref") == std::string::npos,
               fill_in("{}: oneDNN {}.{} has only \"{}\" for this shape",
                       what,
                       DNNL_VERSION_MAJOR,
                       DNNL_VERSION_MINOR,
                       implementation));
  return concat(what, ": oneDNN's ", implementation);
}

std::string describe(const char* op, const ConvolutionPlan& p) {
  return fill_in("[{}] x ({}, {}, {}, {}), {} filters of {}, stride {}, padding {}",
                 op,
                 p.batch,
                 p.height,
                 p.width,
                 p.channels_in,
                 p.channels_out,
                 p.kernel,
                 p.stride,
                 p.padding);
}

double multiplications(const ConvolutionPlan& p) {
  return static_cast<double>(p.batch * p.height_out * p.width_out) *
         static_cast<double>(p.channels_out * p.channels_in * p.kernel * p.kernel);
}

/// oneDNN runs on the calling thread alone. The setting is per thread, and actors may move from
/// thread to thread.
void use_one_thread() {
  thread_local const bool done = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

struct ConvolutionDescs {
  Desc x;
  Desc w_any;
  Desc w_plain;
  Desc bias;
  Desc y;
  Dims strides;
  Dims padding;

  // A tensor of one channel is tagged NHWC like its partner, although its memory is NCHW too: with
  // differing tags oneDNN falls to its reference code.
  explicit ConvolutionDescs(const ConvolutionPlan& p)
      : x({p.batch, p.channels_in, p.height, p.width}, kFloat, Tag::nhwc),
        w_any({p.channels_out, p.channels_in, p.kernel, p.kernel}, kFloat, Tag::any),
        w_plain({p.channels_out, p.channels_in, p.kernel, p.kernel}, kFloat, Tag::ohwi),
        bias({p.channels_out}, kFloat, Tag::a),
        y({p.batch, p.channels_out, p.height_out, p.width_out}, kFloat, Tag::nhwc),
        strides{p.stride, p.stride},
        padding{p.padding, p.padding} {}
};

/// Before anything else of oneDNN is called: with AVX2 alone its products have the bits of machines that have no more.
void limit_instructions() {
  static const dnnl::status done = instruction_set() == InstructionSet::v3
                                       ? dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2)
                                       : dnnl::status::success;
  TROUPE_CHECK(done == dnnl::status::success, "[OneDnn] AVX-512 is in use already");
}

bool may_use(dnnl::cpu_isa isa) {
  limit_instructions();
  const auto needed = static_cast<unsigned>(isa);  // a bit for each extension
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & needed) == needed;
}

}  // namespace

bool onednn_has_avx512() {
#ifdef __x86_64__
  static const bool has = may_use(dnnl::cpu_isa::avx512_core);
  return has;
#else
  return false;
#endif
}

bool has_bfloat16() {
  return may_use(dnnl::cpu_isa::avx512_core_bf16);
}

bool weight_gradient_overruns(const ConvolutionPlan& p) {
  return p.kernel == 1 && p.stride > 1 && p.channels_in < kLargestVector;
}

struct OneDnn::State {
  Arena& arena;
  ScratchGuards guards;
  std::vector<float> zero_bias;

  const float* zeros(std::int64_t count) {
    zero_bias.resize(std::max(zero_bias.size(), static_cast<std::size_t>(count)), 0.0f);
    return zero_bias.data();
  }

  dnnl::engine engine;
  dnnl::stream stream;
  std::unordered_map<Key, Compiled, KeyHash> compiled;

  explicit State(Arena& scratch)
      : arena(scratch),
        engine((limit_instructions(), dnnl::engine::kind::cpu), 0),
        stream(engine) {}

  template <class Make>
  Compiled& find(const Key& key, Make&& make) {
    use_one_thread();
    const auto found = compiled.find(key);
    return found != compiled.end() ? found->second : compiled.emplace(key, make()).first->second;
  }

  static dnnl::primitive_attr attributes(bool accumulate = false) {
    dnnl::post_ops operations;
    if (accumulate) {
      operations.append_sum(1.0f);
    }
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(operations);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
  }

  void add(Compiled& to, int argument, const Desc& desc) const {
    to.arguments.emplace(argument, dnnl::memory(desc, engine, DNNL_MEMORY_NONE));
  }

  template <class PrimitiveDesc>
  void add_scratchpad(Compiled& to, const PrimitiveDesc& description) const {
    const Desc desc = description.scratchpad_desc();
    to.scratchpad_bytes = desc.get_size();
    add(to, DNNL_ARG_SCRATCHPAD, desc);
  }

  void add_weights(
      Compiled& to, int argument, const Desc& plain, const Desc& wanted, bool after) const {
    add(to, argument, wanted);
    to.reorders = wanted != plain;
    to.plain_weights = dnnl::memory(plain, engine, DNNL_MEMORY_NONE);
    if (to.reorders) {
      const dnnl::memory other(wanted, engine, DNNL_MEMORY_NONE);
      to.reorder =
          after ? dnnl::reorder(other, to.plain_weights) : dnnl::reorder(to.plain_weights, other);
      to.weight_bytes = wanted.get_size();
    }
  }

  static void set(Compiled& compiled_one, int argument, const void* data) {
    // oneDNN's handles are not const; sources are only read.
    compiled_one.arguments.at(argument).set_data_handle(const_cast<void*>(data));
  }

  /// The start of `extra_bytes` of scratch behind the scratchpad.
  std::byte* set_scratch(Compiled& compiled_one, std::size_t extra_bytes) {
    const std::size_t scratchpad = compiled_one.scratchpad_bytes;
    const std::size_t guarded = aligned(scratchpad + kGuardBytes);
    std::byte* scratch = arena.at_least(kGuardBytes + guarded + extra_bytes + kGuardBytes);
    std::byte* extra = scratch + kGuardBytes + guarded;
    guards.place({scratch, scratch + kGuardBytes + scratchpad, extra + extra_bytes});
    set(compiled_one, DNNL_ARG_SCRATCHPAD, scratch + kGuardBytes);
    return extra;
  }

  void execute(const Compiled& compiled_one) {
    compiled_one.primitive.execute(stream, compiled_one.arguments);
    guards.check(compiled_one.name);
  }

  /// The weights as the primitive wants them, before it runs.
  void set_source_weights(Compiled& compiled_one, const float* w) {
    std::byte* extra = set_scratch(compiled_one, aligned(compiled_one.weight_bytes));
    if (!compiled_one.reorders) {
      set(compiled_one, DNNL_ARG_WEIGHTS, w);
      return;
    }
    set(compiled_one, DNNL_ARG_WEIGHTS, extra);
    compiled_one.plain_weights.set_data_handle(const_cast<float*>(w));
    compiled_one.reorder.execute(
        stream, compiled_one.plain_weights, compiled_one.arguments.at(DNNL_ARG_WEIGHTS));
  }

  dnnl::convolution_forward::primitive_desc forward_description(const ConvolutionDescs& d) const {
    return described<dnnl::convolution_forward>(engine,
                                                attributes(),
                                                dnnl::prop_kind::forward_training,
                                                dnnl::algorithm::convolution_direct,
                                                d.x,
                                                d.w_any,
                                                d.bias,
                                                d.y,
                                                d.strides,
                                                d.padding,
                                                d.padding);
  }

  /// Of the gradient by x or by w.
  template <class Op>
  typename Op::primitive_desc gradient_description(const ConvolutionDescs& d) const {
    return gradient_described<Op>(engine,
                                  attributes(),
                                  forward_description(d),
                                  dnnl::algorithm::convolution_direct,
                                  d.x,
                                  d.w_any,
                                  d.y,
                                  d.strides,
                                  d.padding,
                                  d.padding);
  }
};

OneDnn::OneDnn(Arena& arena) {
  use_one_thread();
  state_ = std::make_unique<State>(arena);
}

OneDnn::~OneDnn() = default;

void OneDnn::matmul(
    const MatmulPlan& plan, const float* a, const float* b, const float* bias, float* c) {
  State& state = *state_;
  Compiled& compiled = state.find(key_of(plan), [&] {
    // Not the library's own fpmath mode for float32 tensors: that is a permission, which version 2.6 uses on AMX alone.
    const auto type = plan.bfloat16 ? dnnl::memory::data_type::bf16 : kFloat;
    const Desc a_desc({plan.rows, plan.inner}, type, plan.transpose_a ? Tag::ba : Tag::ab);
    const Desc b_desc({plan.inner, plan.columns}, type, plan.transpose_b ? Tag::ba : Tag::ab);
    const Desc c_desc({plan.rows, plan.columns}, kFloat, Tag::ab);
    const Desc bias_desc({1, plan.columns}, kFloat, Tag::ab);
    const auto attributes = State::attributes(plan.accumulate);
    const auto description =
        plan.bias
            ? described<dnnl::matmul>(state.engine, attributes, a_desc, b_desc, bias_desc, c_desc)
            : described<dnnl::matmul>(state.engine, attributes, a_desc, b_desc, c_desc);
    Compiled made;
    made.name =
        accepted(description.impl_info_str(),
                 static_cast<double>(plan.rows) * static_cast<double>(plan.columns * plan.inner),
                 concat("[matmul] ", plan.rows, " x ", plan.columns, " x ", plan.inner));
    made.primitive = dnnl::matmul(description);
    state.add(made, DNNL_ARG_SRC, a_desc);
    state.add(made, DNNL_ARG_WEIGHTS, b_desc);
    state.add(made, DNNL_ARG_DST, c_desc);
    if (plan.bias) {
      state.add(made, DNNL_ARG_BIAS, bias_desc);
    }
    state.add_scratchpad(made, description);
    return made;
  });
  const std::int64_t a_elements = plan.bfloat16 ? plan.rows * plan.inner : 0;
  const std::int64_t b_elements = plan.bfloat16 ? plan.inner * plan.columns : 0;
  const auto bytes = [](std::int64_t n) {
    return aligned(static_cast<std::size_t>(n) * sizeof(BFloat16));
  };
  std::byte* extra = state.set_scratch(compiled, bytes(a_elements) + bytes(b_elements));
  if (plan.bfloat16) {
    auto* a_rounded = reinterpret_cast<BFloat16*>(extra);
    auto* b_rounded = reinterpret_cast<BFloat16*>(extra + bytes(a_elements));
    TROUPE_CPU(round_to_bfloat16)(a, a_elements, a_rounded);
    TROUPE_CPU(round_to_bfloat16)(b, b_elements, b_rounded);
    State::set(compiled, DNNL_ARG_SRC, a_rounded);
    State::set(compiled, DNNL_ARG_WEIGHTS, b_rounded);
  } else {
    State::set(compiled, DNNL_ARG_SRC, a);
    State::set(compiled, DNNL_ARG_WEIGHTS, b);
  }
  State::set(compiled, DNNL_ARG_DST, c);
  if (plan.bias) {
    State::set(compiled, DNNL_ARG_BIAS, bias);
  }
  state.execute(compiled);
}

void OneDnn::convolution_forward(
    const ConvolutionPlan& plan, const float* x, const float* w, const float* bias, float* y) {
  State& state = *state_;
  Compiled& compiled = state.find(key_of(Pass::forward, plan), [&] {
    const ConvolutionDescs d(plan);
    const auto description = state.forward_description(d);
    Compiled made;
    made.name = accepted(
        description.impl_info_str(), multiplications(plan), describe("convolution_forward", plan));
    made.primitive = dnnl::convolution_forward(description);
    state.add(made, DNNL_ARG_SRC, d.x);
    state.add(made, DNNL_ARG_BIAS, d.bias);
    state.add(made, DNNL_ARG_DST, d.y);
    state.add_weights(made, DNNL_ARG_WEIGHTS, d.w_plain, description.weights_desc(), false);
    state.add_scratchpad(made, description);
    return made;
  });
  State::set(compiled, DNNL_ARG_SRC, x);
  State::set(compiled, DNNL_ARG_BIAS, bias ? bias : state.zeros(plan.channels_out));
  State::set(compiled, DNNL_ARG_DST, y);
  state.set_source_weights(compiled, w);
  state.execute(compiled);
}

void OneDnn::convolution_input_gradient(const ConvolutionPlan& plan,
                                        const float* dy,
                                        const float* w,
                                        float* dx) {
  State& state = *state_;
  Compiled& compiled = state.find(key_of(Pass::input_gradient, plan), [&] {
    const ConvolutionDescs d(plan);
    const auto description = state.gradient_description<dnnl::convolution_backward_data>(d);
    Compiled made;
    made.name = accepted(description.impl_info_str(),
                         multiplications(plan),
                         describe("convolution_input_gradient", plan));
    made.primitive = dnnl::convolution_backward_data(description);
    state.add(made, DNNL_ARG_DIFF_DST, d.y);
    state.add(made, DNNL_ARG_DIFF_SRC, d.x);
    state.add_weights(made, DNNL_ARG_WEIGHTS, d.w_plain, description.weights_desc(), false);
    state.add_scratchpad(made, description);
    return made;
  });
  State::set(compiled, DNNL_ARG_DIFF_DST, dy);
  State::set(compiled, DNNL_ARG_DIFF_SRC, dx);
  state.set_source_weights(compiled, w);
  state.execute(compiled);
}

void OneDnn::convolution_weight_gradient(
    const ConvolutionPlan& plan, const float* x, const float* dy, float* dw, bool accumulate) {
  TROUPE_CHECK(!weight_gradient_overruns(plan),
               describe("convolution_weight_gradient", plan),
               ": oneDNN writes behind its scratchpad");
  State& state = *state_;
  Compiled& compiled = state.find(key_of(Pass::weight_gradient, plan), [&] {
    const ConvolutionDescs d(plan);
    const auto description = state.gradient_description<dnnl::convolution_backward_weights>(d);
    Compiled made;
    made.name = accepted(description.impl_info_str(),
                         multiplications(plan),
                         describe("convolution_weight_gradient", plan));
    made.primitive = dnnl::convolution_backward_weights(description);
    state.add(made, DNNL_ARG_SRC, d.x);
    state.add(made, DNNL_ARG_DIFF_DST, d.y);
    state.add_weights(
        made, DNNL_ARG_DIFF_WEIGHTS, d.w_plain, description.diff_weights_desc(), true);
    state.add_scratchpad(made, description);
    return made;
  });
  const std::size_t elements =
      static_cast<std::size_t>(plan.channels_out * plan.kernel * plan.kernel * plan.channels_in);
  const std::size_t reordered_bytes = aligned(compiled.weight_bytes);
  std::byte* extra =
      state.set_scratch(compiled, reordered_bytes + aligned(elements * sizeof(float)));
  float* plain = accumulate ? reinterpret_cast<float*>(extra + reordered_bytes) : dw;
  State::set(compiled, DNNL_ARG_SRC, x);
  State::set(compiled, DNNL_ARG_DIFF_DST, dy);
  State::set(
      compiled, DNNL_ARG_DIFF_WEIGHTS, compiled.reorders ? static_cast<void*>(extra) : plain);
  state.execute(compiled);
  if (compiled.reorders) {
    compiled.plain_weights.set_data_handle(plain);
    compiled.reorder.execute(
        state.stream, compiled.arguments.at(DNNL_ARG_DIFF_WEIGHTS), compiled.plain_weights);
  }
  if (accumulate) {
    for (std::size_t i = 0; i < elements; ++i) {
      dw[i] += plain[i];
    }
  }
}

}  // namespace troupe::cpu
