#include "runtime/data/archive.hpp"

#include "runtime/data/input_file.hpp"
#include "runtime/record/output_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 512;
constexpr std::size_t kReadBytes = std::size_t{1} << 16;
static_assert(kReadBytes % kBlock == 0);

/// A field of a header, up to its first zero.
std::string_view field(const Bytes& header, std::size_t at, std::size_t width) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + at, width);
  return text.substr(0, text.find('\0'));
}

/// An octal number among blanks; nullopt where it is none.
std::optional<std::size_t> octal(std::string_view text) {
  std::size_t number = 0;
  bool any = false;
  for (const char c : text) {
    if (c == ' ') {
      continue;
    }
    if (c < '0' || c > '7') {
      return std::nullopt;
    }
    number = number * 8 + static_cast<std::size_t>(c - '0');
    any = true;
  }
  return any ? std::optional(number) : std::nullopt;
}

bool sum_is_right(const Bytes& header) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    sum += i >= 148 && i < 156 ? ' ' : header[i];  // its own field counts as blanks
  }
  return octal(field(header, 148, 8)) == sum;
}

bool leads_outside(const fs::path& name) {
  return name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end();
}

/// What is written while an archive is read: FILE.part until all is there.
class Unpacking {
 public:
  Unpacking(const fs::path& archive,
            std::span<const std::string_view> names,
            const fs::path& folder)
      : path_(archive), names_(names), folder_(folder), file_(archive) {}

  Result<void> run() {
    Result<void> read = read_members();
    for (const std::string_view name : names_) {
      std::error_code code;
      const bool there = std::find(written_.begin(), written_.end(), name) != written_.end();
      if (read && !there) {
        read = damaged(concat("it has no ", name));
      }
    }
    for (const std::string_view name : written_) {
      std::error_code code;
      if (read) {
        fs::rename(part(name), folder_ / name, code);
      } else {
        fs::remove(part(name), code);
      }
      if (read && code) {
        read = Error{ErrorKind::lost,
                     concat((folder_ / name).string(), " could not be written: ", code.message())};
      }
    }
    return read;
  }

 private:
  fs::path part(std::string_view name) const { return folder_ / (std::string(name) + ".part"); }

  Error damaged(const std::string& what) const {
    return {ErrorKind::data, concat(path_.string(), " is not usable: ", what)};
  }

  /// Exactly `count` bytes, in place of what is in `out`.
  Result<void> read(std::size_t count, Bytes& out) {
    out.clear();
    if (!file_.read(count, out)) {
      return damaged(file_.error());
    }
    if (out.size() < count) {
      return damaged("it ends before its end mark");
    }
    return {};
  }

  Result<void> read_members() {
    Bytes header;
    for (;;) {
      if (auto done = read(kBlock, header); !done) {
        return done;
      }
      if (std::all_of(header.begin(), header.end(), [](std::uint8_t byte) { return byte == 0; })) {
        return read_rest();
      }
      const auto size = octal(field(header, 124, 12));
      if (!sum_is_right(header) || !size) {
        return damaged("it is no tar archive, or a damaged one");
      }
      if (auto done = read_member(header, *size); !done) {
        return done;
      }
    }
  }

  /// To the end, so that gzip's own checksum is compared.
  Result<void> read_rest() {
    Bytes bytes;
    do {
      bytes.clear();
      if (!file_.read(kReadBytes, bytes)) {
        return damaged(file_.error());
      }
    } while (!bytes.empty());
    return {};
  }

  Result<void> read_member(const Bytes& header, std::size_t size) {
    const fs::path name = fs::path(field(header, 345, 155)) / field(header, 0, 100);
    if (leads_outside(name)) {
      return damaged(concat("it has a file called ", name.string(), ", which leads outside"));
    }
    const std::uint8_t kind = header[156];
    const auto wanted = std::find(names_.begin(), names_.end(), name.filename().string());
    std::unique_ptr<OutputFile> out;
    if (wanted != names_.end() && (kind == '0' || kind == 0)) {
      if (std::find(written_.begin(), written_.end(), *wanted) != written_.end()) {
        return damaged(concat("it has ", *wanted, " twice"));
      }
      auto created = OutputFile::create(part(*wanted));
      if (!created) {
        return created.error();
      }
      out = std::move(*created);
      written_.push_back(*wanted);
    }
    Bytes bytes;
    for (std::size_t left = size; left > 0;) {
      const std::size_t count = std::min(left, kReadBytes);
      const std::size_t padded = (count + kBlock - 1) / kBlock * kBlock;  // only the last has any
      if (auto done = read(padded, bytes); !done) {
        return done;
      }
      if (out) {
        out->write({reinterpret_cast<const char*>(bytes.data()), count});
        if (out->failed()) {
          break;
        }
      }
      left -= count;
    }
    return out ? out->close() : Result<void>();
  }

  fs::path path_;
  std::span<const std::string_view> names_;
  fs::path folder_;
  InputFile file_;
  std::vector<std::string_view> written_;
};

}  // namespace

Result<void> unpack(const fs::path& archive,
                    std::span<const std::string_view> names,
                    const fs::path& folder) {
  return Unpacking(archive, names, folder).run();
}

}  // namespace troupe
