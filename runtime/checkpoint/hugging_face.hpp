// GPT-2's and Llama's weights under the names and in the order of Hugging Face's transformers, where these are not ours:
//
//   here                                     there
//   *.qkv_proj.weight                        q_proj, k_proj, v_proj: its rows, as many of q as it has columns
//   *.gate_up_proj.weight                    gate_proj, up_proj: its upper and its lower half
//   *.w13.weight, of an expert               w1, w3: the same
//   *.c_attn, c_fc, c_proj.weight (out, in)  (in, out), as their Conv1D has them
//   transformer.*                            also without it
//
// Theirs may have buffers (attn.bias, attn.masked_bias, rotary_emb.inv_freq), and a head that is the table, which are left out.
#pragma once

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/weights.hpp"

#include <vector>

namespace troupe {

/// The tensors of a file of ours under their names.
SafetensorsFile to_hugging_face(const SafetensorsFile& file);

/// The tensors of a file of theirs under ours, as far as `specs` has these.
SafetensorsFile from_hugging_face(const SafetensorsFile& file,
                                  const std::vector<WeightSpec>& specs);

}  // namespace troupe
