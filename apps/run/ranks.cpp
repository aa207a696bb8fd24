#include "apps/run/ranks.hpp"

#include "kernels/numeral.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace troupe {
namespace {

constexpr int kPort = 29500;  // torchrun's
constexpr int kPortMax = 65535;

/// Who starts processes, and what he tells each of them.
struct Starter {
  const char* rank;
  const char* processes;
  const char* of_this_machine;  // how many processes are here; null: not told
};

constexpr std::array kStarters{
    Starter{"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    Starter{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Starter{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    Starter{"SLURM_PROCID", "SLURM_NTASKS", nullptr},
};

Error wrong_environment(const std::string& why) {
  return {ErrorKind::usage, "--join env: " + why};
}

Result<int> number_in(const std::string& name, const std::string& text, int least, int most) {
  const auto number = numeral<int>(text);
  if (!number || *number < least || *number > most) {
    return wrong_environment(
        concat(name, " is \"", text, "\", use a number from ", least, " to ", most));
  }
  return *number;
}

/// One for each job, so that two on one machine do not meet.
int port_of_job(const std::string& job) {
  constexpr int kFirst = 20'000;
  constexpr int kCount = 12'000;  // below those that a system hands out
  int number = 0;
  std::from_chars(job.data(), job.data() + job.size(), number);
  return number > 0 ? kFirst + number % kCount : kPort;
}

Result<HostAddress> lead_in(const std::function<std::string(const char*)>& value,
                            const Starter& starter,
                            bool one_machine) {
  HostAddress lead{.host = value("MASTER_ADDR"), .port = port_of_job(value("SLURM_JOB_ID"))};
  if (const std::string port = value("MASTER_PORT"); !port.empty()) {
    const auto number = number_in("MASTER_PORT", port, 1, kPortMax);
    TROUPE_TRY(number);
    // torchrun's agent itself listens at MASTER_PORT then.
    lead.port = value("TORCHELASTIC_USE_AGENT_STORE") == "True" ? port_of_job(port) : *number;
  }
  const std::string nodes = value("SLURM_STEP_NODELIST");
  if (lead.host.empty() && one_machine) {
    lead.host = kThisMachine;
  } else if (lead.host.empty()) {
    lead.host = first_node(nodes.empty() ? value("SLURM_JOB_NODELIST") : nodes);
  }
  if (!is_host(lead.host)) {
    return wrong_environment(concat(starter.rank,
                                    " is set, but nothing tells where process 0 is; set "
                                    "MASTER_ADDR, the name of its host, for all processes"));
  }
  return lead;
}

}  // namespace

std::string first_node(const std::string& list) {
  std::string name;
  bool skips = false;
  bool inside = false;
  for (const char c : list) {
    if (c == '[') {
      inside = true;
    } else if (c == ']') {
      inside = skips = false;
    } else if (inside && (c == ',' || c == '-')) {
      skips = true;
    } else if (c == ',') {
      break;
    } else if (!skips) {
      name += c;
    }
  }
  return name;
}

Result<Ranks> ranks_in(const std::function<std::string(const char*)>& value) {
  const auto starter = std::find_if(kStarters.begin(), kStarters.end(), [&](const Starter& s) {
    return !value(s.rank).empty() && !value(s.processes).empty();
  });
  if (starter == kStarters.end()) {
    return wrong_environment(
        "nothing in the environment tells which process this is; torchrun, Slurm, Open MPI and PMI "
        "are known, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
  }
  const std::string count = value(starter->processes);
  const auto processes = number_in(starter->processes, count, 1, kProcessesMax);
  TROUPE_TRY(processes);
  const auto rank = number_in(starter->rank, value(starter->rank), 0, *processes - 1);
  TROUPE_TRY(rank);
  Ranks found{.rank = *rank,
              .processes = *processes,
              .one_machine = starter->of_this_machine && value(starter->of_this_machine) == count,
              .told_by = starter->rank};
  if (found.processes > 1) {
    auto lead = lead_in(value, *starter, found.one_machine);
    TROUPE_TRY(lead);
    found.lead = *std::move(lead);
  }
  return found;
}

Result<Ranks> ranks_of_environment() {
  return ranks_in([](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value ? value : "";
  });
}

}  // namespace troupe
