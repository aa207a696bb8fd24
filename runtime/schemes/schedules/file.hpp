// Schedules in files: the CSV that PyTorch's pipelining writes and reads (torch.distributed.pipelining,
// its form compute_only). A row is a stage and a cell an action of one mini-batch: 0F3 is the forward of
// micro-batch 3 on chunk 0, B a backward, I an input gradient and W a weight gradient. Empty cells are
// idle time, which a stage finds by itself.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"
#include "runtime/schemes/schedules/schedule.hpp"

#include <string>
#include <vector>

namespace troupe {

/// What pipeline.schedule.file says, a text a row: cells with a space between, "." for an empty one. From
/// its path where it has one, else its rows. Error (usage) where the file cannot be read.
Result<std::vector<std::string>> schedule_rows(const proto::Experiment& experiment);

/// Puts rows in the place of pipeline.schedule.file.path, so that the experiment no longer needs the file.
/// Error as schedule_rows.
Result<void> keep_schedule_rows(proto::Experiment& experiment);

/// The file's text of a flushed schedule. Error (usage) where it is not flushed: its mini-batches overlap.
Result<std::string> schedule_csv(const Schedule& schedule);

}  // namespace troupe
