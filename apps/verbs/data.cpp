// troupe data: gets data sets that are not built in, and shows what a run reads.
#include "apps/cli/text.hpp"
#include "apps/topologies/blueprint.hpp"
#include "apps/verbs/data_files.hpp"
#include "apps/verbs/verb.hpp"
#include "kernels/numeral.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/other_names.hpp"
#include "messages/sections.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/data/fetch.hpp"
#include "runtime/data/folders.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

struct DataArguments {
  std::string what;
  std::vector<std::string> words;
  std::string to;
  std::string from;
  std::vector<std::string> sha256;
  std::vector<std::string> assignments;
  std::string vocabulary;
};

Error usage(const std::string& what) {
  return {ErrorKind::usage, "data: " + what};
}

std::string near_to(const std::string& name, const std::vector<std::string>& names) {
  const std::string near = nearest(name, names);
  return near.empty() ? "" : did_you_mean({near});
}

std::vector<std::string> set_names() {
  return mapped<std::string>(fetch_sets(), [&](const FetchSet& set) { return set.name; });
}

Result<const FetchSet*> find_set(const std::string& name) {
  for (const FetchSet& set : fetch_sets()) {
    if (set.name == name) {
      return &set;
    }
  }
  const std::vector<std::string> names = set_names();
  return name.empty() ? usage("say which: " + joined(names, ", "))
                      : usage(fill_in("there is no \"{}\" to fetch{} ({})",
                                      name,
                                      near_to(name, names),
                                      joined(names, ", ")));
}

/// FILE=HEX or, where the set is one file, HEX; by file.
Result<std::map<std::string, std::string>> sums(const FetchSet& set,
                                                const std::vector<std::string>& given) {
  std::map<std::string, std::string> all;
  for (const std::string& argument : given) {
    const std::size_t equals = argument.find('=');
    const bool named = equals != argument.npos;
    std::string file = named ? argument.substr(0, equals) : std::string(set.files.front().name);
    std::string sum = named ? argument.substr(equals + 1) : argument;
    std::transform(sum.begin(), sum.end(), sum.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    std::vector<std::string> names =
        mapped<std::string>(set.files, [&](const FetchFile& one) { return one.name; });
    if (!named && names.size() > 1) {
      return usage(concat("--sha256: say of which file, as FILE=SUM (", joined(names, ", "), ")"));
    }
    if (std::find(names.begin(), names.end(), file) == names.end()) {
      return usage(
          concat("--sha256: ", set.name, " has no ", file, " (", joined(names, ", "), ")"));
    }
    if (sum.size() != 64 || sum.find_first_not_of("0123456789abcdef") != sum.npos) {
      return usage(concat("--sha256: \"", sum, "\" is not 64 hexadecimal digits"));
    }
    all[std::move(file)] = std::move(sum);
  }
  return all;
}

/// The line of the file that is on its way: rewritten, and only on a terminal.
class Line {
 public:
  explicit Line(Console& console) : console_(console) {}

  void progress(std::string_view file, std::int64_t bytes, std::int64_t total) {
    if (!console_.terminal) {
      return;
    }
    const auto part = static_cast<double>(bytes);
    std::string text = concat(file, "  ", mebibytes(part));
    if (total > 0) {
      const auto whole = static_cast<double>(total);
      text += concat(" of ", mebibytes(whole), " (", percent(part / whole), ")");
    }
    console_.err << '\r' << text << "\x1b[K" << std::flush;
    open_ = true;
  }

  void note(std::string_view file, const std::string& sentence) {
    close();
    console_.err << file << ": " << sentence << '\n' << std::flush;
  }

  void close() {
    if (open_) {
      console_.err << "\r\x1b[K" << std::flush;
    }
    open_ = false;
  }

 private:
  Console& console_;
  bool open_ = false;
};

Result<int> fetch_set(Console& console, const DataArguments& arguments) {
  if (arguments.words.size() > 1 || !arguments.assignments.empty()) {
    return usage(
        "it is `troupe data fetch [--to DIR] [--from URL] [--sha256 [FILE=]SUM] "
        "NAME`");
  }
  const auto set = find_set(arguments.words.empty() ? "" : arguments.words[0]);
  TROUPE_TRY(set);
  auto sha256 = sums(**set, arguments.sha256);
  TROUPE_TRY(sha256);
  const bool usual = arguments.to.empty();
  if (usual && cache_folder().empty()) {
    return usage("neither HOME nor XDG_CACHE_HOME is set, so --to must say where to");
  }
  Line line(console);
  FetchOptions options;
  options.folder = usual ? cache_folder() / (*set)->name : std::filesystem::path(arguments.to);
  options.url = arguments.from;
  options.sha256 = *std::move(sha256);
  options.progress = [&](std::string_view file, std::int64_t bytes, std::int64_t total) {
    line.progress(file, bytes, total);
  };
  options.note = [&](std::string_view file, const std::string& sentence) {
    line.note(file, sentence);
  };
  const auto done = fetch(**set, options);
  line.close();
  TROUPE_TRY(done);
  const bool text = (*set)->name == "shakespeare";
  const std::string key = text ? "text" : std::string((*set)->name);
  const std::string path = (text ? options.folder / "input.txt" : options.folder).string();
  console.out << (*set)->title << " is in " << options.folder.string() << "; use it by --set data"
              << (usual ? "=" + key : concat(".", key, ".path=", path)) << '\n';
  return 0;
}

// -- batches --------------------------------------------------------------------------------------

/// The elements of `count` tensors of one shape and type, one after another.
struct Stack {
  std::vector<std::int64_t> shape;  // (count, that of each...)
  std::string dtype;
  std::vector<std::byte> bytes;

  void push(const Tensor& x) {
    if (shape.empty()) {
      dtype = x.type() == DType::int32 ? "I32" : "F32";
      shape.push_back(0);
      for (int i = 0; i < x.shape().dimensions(); ++i) {
        shape.push_back(x.shape()[i]);
      }
    }
    ++shape[0];
    const auto more = x.type() == DType::int32 ? std::as_bytes(x.span<std::int32_t>())
                                               : std::as_bytes(x.span<float>());
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
};

constexpr std::int64_t kBatchesMax = 100'000;

Result<std::int64_t> parse_count(const std::string& text) {
  const std::int64_t count = numeral<std::int64_t>(text).value_or(0);
  if (count < 1 || count > kBatchesMax) {
    return usage(concat("COUNT: \"", text, "\" is no number from 1 to ", kBatchesMax));
  }
  return count;
}

/// Mini-batches 0 .. COUNT - 1 of a run, as its first stage and its head would get them.
Result<std::string> write_batches(const DataArguments& arguments) {
  if (arguments.words.size() != 3 || !arguments.to.empty() || !arguments.from.empty() ||
      !arguments.sha256.empty()) {
    return usage("it is `troupe data batches [--set PATH=VALUE] EXPERIMENT COUNT OUT.safetensors`");
  }
  const std::string& out = arguments.words[2];
  const auto count = parse_count(arguments.words[1]);
  TROUPE_TRY(count);
  TROUPE_TRY(check_is_new("data: ", out));
  const auto blueprint =
      make_blueprint({.experiment = arguments.words[0], .assignments = arguments.assignments});
  TROUPE_TRY(blueprint);
  const proto::Experiment& e = blueprint->experiment;
  const Dataset& data = *blueprint->data;
  BatchOrder order(data.size(Split::train), blueprint->sizes, sections::seed(e));
  Stream stream(Device{});
  Stack x;
  Stack target;
  for (std::int64_t batch = 0; batch < *count; ++batch) {
    const Batch of =
        gather_batch(stream, data, Split::train, order.indices(batch, 0, 1), order.epoch(batch));
    x.push(of.x);
    target.push(of.target);
  }
  TROUPE_TRY(write_safetensors(
      out,
      {{"x", x.dtype, x.shape, x.bytes}, {"target", target.dtype, target.shape, target.bytes}},
      {}));
  return concat("wrote ", out, ": x and target of the first ", *count, " mini-batches\n");
}

/// What was done, in a sentence.
Result<int> data(Console& console, const DataArguments& arguments) {
  if (!arguments.vocabulary.empty() && arguments.what != "tokenize") {
    return usage("--vocabulary is for tokenize");
  }
  if (arguments.what == "tokenize" || arguments.what == "convert") {
    if (!arguments.to.empty() || !arguments.from.empty() || !arguments.sha256.empty()) {
      return usage("--to, --from and --sha256 are for fetch");
    }
    return tell(console,
                arguments.what == "tokenize"
                    ? write_tokens(arguments.words, arguments.vocabulary, arguments.assignments)
                    : write_arrays(arguments.words, arguments.assignments));
  }
  if (arguments.what == "fetch") {
    return fetch_set(console, arguments);
  }
  if (arguments.what == "batches") {
    return tell(console, write_batches(arguments));
  }
  return usage(arguments.what.empty()
                   ? "say fetch, batches, tokenize or convert; what can be fetched: " +
                         joined(set_names(), ", ")
                   : fill_in("\"{}\" is none of fetch, batches, tokenize and convert{}",
                             arguments.what,
                             near_to(arguments.what, {"fetch", "batches", "tokenize", "convert"})));
}

}  // namespace

Command declare_data() {
  auto arguments = std::make_shared<DataArguments>();
  return {
      .options =
          {{.names = "WHAT",
            .value = &arguments->what,
            .doc = "fetch NAME: downloads a data set, or what of it is missing; batches "
                   "EXPERIMENT COUNT OUT.safetensors: writes the first mini-batches of a run, "
                   "images (H, W, C); tokenize TEXT OUT.bin: writes the numbers of a text's "
                   "tokens, for "
                   "data.tokens; convert TABLE.csv DIR: writes a table as arrays, for data.arrays"},
           {.names = "WORDS",
            .value = &arguments->words,
            .doc = concat("NAME: ", joined(set_names(), ", "))},
           {.names = "--to",
            .value = &arguments->to,
            .doc = "folder of the files (default: NAME in $XDG_CACHE_HOME/troupe or "
                   "~/.cache/troupe, where runs look for it)",
            .type = "DIR"},
           {.names = "--from",
            .value = &arguments->from,
            .doc = "folder on another server, with files of the same names",
            .type = "URL"},
           {.names = "--sha256",
            .value = &arguments->sha256,
            .doc = "sum that a file must have in place of the known one; repeatable",
            .type = "[FILE=]SUM"},
           {.names = "--vocabulary",
            .value = &arguments->vocabulary,
            .doc = "tokenize: folder with the vocab.json and merges.txt of GPT-2's byte pairs "
                   "(default: each byte is a token)",
            .type = "DIR",
            .refuse_empty = kEmptyFolder},
           set_option(arguments->assignments,
                      "batches: sets a key of the experiment; convert: a key below data.csv")},
      .action = [arguments](Console& console) {
        return data(console, *arguments);
      }};
}

}  // namespace troupe
