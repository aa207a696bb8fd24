// What machine this is, in words for a person.
#pragma once

#include "runtime/record/summary.hpp"

#include <string>

namespace troupe {

/// What stands behind the first "key" of a file like /proc/cpuinfo; "" where there is none.
std::string value_of(const char* path, const std::string& key);

/// The processor's model, "" where nothing tells.
std::string cpu_model();

/// "cuda:0 NVIDIA H200, 140 GiB; ...", "" where there is none.
std::string gpu_models();

/// This host's, "" where it has none.
std::string host_name();

/// A sentence where what a record or a checkpoint has come from was computed with other instructions than this process
/// uses; "" where it was not, or says nothing of it.
std::string other_instructions(const std::string& then);

/// Of a run of this process.
Summary::Origin origin_of_run();

}  // namespace troupe
