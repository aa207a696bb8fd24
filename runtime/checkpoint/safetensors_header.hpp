// The JSON of a safetensors header. Private to runtime/checkpoint.
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct SafetensorsHeader {
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> data_offsets;
  };

  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Tensors in the order of their data. Error (data) says what is wrong. Refused are members that the format does not have,
/// names given twice, members that are missing, numbers that are not whole, negative or from 2^53 on, and text that is
/// not UTF-8. What the values mean is not looked at.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text);

}  // namespace troupe
