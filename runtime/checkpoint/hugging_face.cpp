#include "runtime/checkpoint/hugging_face.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace troupe {
namespace {

/// A matrix of ours, and theirs that stand one below the other in it.
struct Stacked {
  std::string ours;
  std::vector<std::string> theirs;
};

const std::array<Stacked, 3>& stacked() {
  static const std::array<Stacked, 3> all{
      {{".qkv_proj.weight", {".q_proj.weight", ".k_proj.weight", ".v_proj.weight"}},
       {".gate_up_proj.weight", {".gate_proj.weight", ".up_proj.weight"}},
       {".w13.weight", {".w1.weight", ".w3.weight"}}}};
  return all;
}

bool is_matrix(const SafetensorsEntry& entry) {
  return entry.shape.size() == 2 && readable_as_floats(entry.dtype);
}

bool is_transposed(const SafetensorsEntry& entry) {
  return is_matrix(entry) &&
         (entry.name.ends_with(".c_attn.weight") || entry.name.ends_with(".c_fc.weight") ||
          entry.name.ends_with(".c_proj.weight"));
}

std::string with_end(const std::string& name, const std::string& end, const std::string& other) {
  return name.substr(0, name.size() - end.size()) + other;
}

/// Tensors that stand in a file, or that are made of such.
class Tensors {
 public:
  explicit Tensors(const SafetensorsFile& file) : file_(file) { kept_->file = file; }

  void keep(SafetensorsEntry entry) { entries_.push_back(std::move(entry)); }

  void make(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
    kept_->values.push_back(std::move(values));
    entries_.push_back(
        {name, "F32", std::move(shape), std::as_bytes(std::span(kept_->values.back()))});
  }

  void make_transposed(const SafetensorsEntry& entry, const std::string& name) {
    const std::vector<float> from = floats_of(entry);
    const auto rows = static_cast<std::size_t>(entry.shape[0]);
    const auto columns = static_cast<std::size_t>(entry.shape[1]);
    std::vector<float> to(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i % columns * rows + i / columns] = from[i];
    }
    make(name, {entry.shape[1], entry.shape[0]}, std::move(to));
  }

  SafetensorsFile all() const { return SafetensorsFile::of(file_, entries_, kept_); }

 private:
  struct Kept {
    SafetensorsFile file;
    std::deque<std::vector<float>> values;
  };

  SafetensorsFile file_;
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  std::vector<SafetensorsEntry> entries_;
};

/// Whether its rows are what it is made of: two halves, or q and as many rows each of k and v.
bool has_rows_of(const SafetensorsEntry& entry, const Stacked& one) {
  if (!is_matrix(entry)) {
    return false;
  }
  const std::int64_t rows = entry.shape[0] - (one.theirs.size() == 2 ? 0 : entry.shape[1]);
  return rows > 0 && rows % 2 == 0;
}

const Stacked* stacked_of_ours(const SafetensorsEntry& entry) {
  const auto found = std::find_if(stacked().begin(), stacked().end(), [&](const Stacked& one) {
    return entry.name.ends_with(one.ours) && has_rows_of(entry, one);
  });
  return found == stacked().end() ? nullptr : &*found;
}

void take_apart(Tensors& tensors, const SafetensorsEntry& entry, const Stacked& one) {
  const std::vector<float> all = floats_of(entry);
  const std::int64_t columns = entry.shape[1];
  const bool halves = one.theirs.size() == 2;
  std::int64_t rows = halves ? entry.shape[0] / 2 : columns;
  auto from = all.begin();
  for (const std::string& name : one.theirs) {
    const auto to = from + rows * columns;
    tensors.make(with_end(entry.name, one.ours, name), {rows, columns}, {from, to});
    from = to;
    rows = halves ? rows : (entry.shape[0] - columns) / 2;
  }
}

/// Whether the head is the table of tokens, bit for bit: a tied one.
bool is_table(const SafetensorsFile& file, const SafetensorsEntry& head) {
  for (const char* const name :
       {"model.embed_tokens.weight", "transformer.wte.weight", "wte.weight"}) {
    if (const SafetensorsEntry* const table = file.find(name)) {
      return table->shape == head.shape && floats_of(*table) == floats_of(head);
    }
  }
  return false;
}

bool is_left_out(const SafetensorsFile& file,
                 const SafetensorsEntry& entry,
                 const std::set<std::string>& wanted) {
  const std::string& name = entry.name;
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq") ||
         (name == "lm_head.weight" && !wanted.contains(name) && is_table(file, entry));
}

/// Theirs, where all that makes one of ours is there: the first adds it, the others add nothing.
bool put_together(Tensors& tensors,
                  const SafetensorsFile& file,
                  const SafetensorsEntry& entry,
                  const std::set<std::string>& wanted) {
  for (const Stacked& one : stacked()) {
    for (const std::string& end : is_matrix(entry) ? one.theirs : std::vector<std::string>{}) {
      const std::string ours = entry.name.ends_with(end) ? with_end(entry.name, end, one.ours) : "";
      if (!wanted.contains(ours)) {
        continue;
      }
      std::vector<float> all;
      std::int64_t rows = 0;
      for (const std::string& name : one.theirs) {
        const SafetensorsEntry* const part = file.find(with_end(entry.name, end, name));
        if (!part || !is_matrix(*part) || part->shape[1] != entry.shape[1]) {
          return false;
        }
        const std::vector<float> values = floats_of(*part);
        all.insert(all.end(), values.begin(), values.end());
        rows += part->shape[0];
      }
      if (end == one.theirs.front()) {
        tensors.make(ours, {rows, entry.shape[1]}, std::move(all));
      }
      return true;
    }
  }
  return false;
}

}  // namespace

SafetensorsFile to_hugging_face(const SafetensorsFile& file) {
  Tensors tensors(file);
  for (const SafetensorsEntry& entry : file.entries()) {
    if (const Stacked* const one = stacked_of_ours(entry)) {
      take_apart(tensors, entry, *one);
    } else if (is_transposed(entry)) {
      tensors.make_transposed(entry, entry.name);
    } else {
      tensors.keep(entry);
    }
  }
  return tensors.all();
}

SafetensorsFile from_hugging_face(const SafetensorsFile& file,
                                  const std::vector<WeightSpec>& specs) {
  std::set<std::string> wanted;
  for (const WeightSpec& spec : specs) {
    wanted.insert(spec.name);
  }
  Tensors tensors(file);
  for (SafetensorsEntry entry : file.entries()) {
    if (is_left_out(file, entry, wanted) || put_together(tensors, file, entry, wanted)) {
      continue;
    }
    const std::string longer = "transformer." + entry.name;
    const std::string name = wanted.contains(longer) ? longer : entry.name;
    if (is_transposed(entry)) {
      tensors.make_transposed(entry, name);
    } else {
      entry.name = name;
      tensors.keep(std::move(entry));
    }
  }
  return tensors.all();
}

}  // namespace troupe
