#include "runtime/data/archive.hpp"

#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/output_file.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 512;  // of a tar archive, whose last one is of zeros
constexpr std::size_t kTarBytes = std::size_t{1} << 16;
constexpr std::size_t kDeflateMost = 1032;  // bytes that one byte of deflate can become
constexpr std::size_t kNamesShown = 12;

struct FreeReader {
  void operator()(struct ::archive* reader) const { archive_read_free(reader); }
};

using ArchiveReader = std::unique_ptr<struct ::archive, FreeReader>;

/// While it lives, this thread's names are UTF-8, into which libarchive translates those of an archive.
class NamesInUtf8 {
 public:
  NamesInUtf8()
      : names_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)),
        before_(names_ != nullptr ? uselocale(names_) : nullptr) {}

  ~NamesInUtf8() {
    if (names_ != nullptr) {
      uselocale(before_);
      freelocale(names_);
    }
  }

  NamesInUtf8(const NamesInUtf8&) = delete;
  NamesInUtf8& operator=(const NamesInUtf8&) = delete;

 private:
  locale_t names_;
  locale_t before_;
};

std::string entry_name(struct ::archive_entry* entry) {
  const char* const name = archive_entry_pathname(entry);
  return name != nullptr ? name : "";
}

/// Whether there is a next entry; `sound` becomes false where the archive is damaged. A name that cannot be translated is
/// no damage: nobody asks for it.
bool next_entry(struct ::archive* reader, struct ::archive_entry*& entry, bool& sound) {
  const int code = archive_read_next_header(reader, &entry);
  sound = code == ARCHIVE_OK || code == ARCHIVE_WARN || code == ARCHIVE_EOF;
  return sound && code != ARCHIVE_EOF;
}

/// What is read of a tar archive, inflated where it is gzip's, and no more than an InputFile believes.
struct TarBytes {
  InputFile file;
  Bytes piece{};
  bool failed = false;
  bool marked = false;  // what was read ends with a block of zeros

  bool read() {
    piece.clear();
    failed = !file.read(kTarBytes, piece);
    if (!failed && !piece.empty()) {
      const std::size_t last = std::min(kBlock, piece.size());
      marked = std::all_of(
          piece.end() - std::ptrdiff_t(last), piece.end(), [](auto b) { return b == 0; });
    }
    return !failed;
  }

  static la_ssize_t read_next(struct ::archive* reader, void* self, const void** piece) {
    TarBytes& bytes = *static_cast<TarBytes*>(self);
    if (!bytes.read()) {
      archive_set_error(reader, EIO, "its bytes cannot be read");
      return -1;
    }
    *piece = bytes.piece.data();
    return std::ssize(bytes.piece);
  }
};

bool leads_outside(const fs::path& name) {
  return name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end();
}

/// What is written while an archive is read: FILE.part until all is there.
class Unpacking {
 public:
  Unpacking(const fs::path& archive,
            std::span<const std::string_view> names,
            const fs::path& folder)
      : path_(archive), names_(names), folder_(folder), bytes_{.file = InputFile(archive)} {}

  Result<void> run() {
    Result<void> read = read_entries();
    for (const std::string_view name : names_) {
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
        read = lost_error("{} could not be written: {}", (folder_ / name).string(), code.message());
      }
    }
    return read;
  }

 private:
  fs::path part(std::string_view name) const { return folder_ / (std::string(name) + ".part"); }

  Error damaged(const std::string& what) const {
    return {ErrorKind::data, concat(path_.string(), " is not usable: ", what)};
  }

  /// By what libarchive says of it.
  Error damaged() const {
    if (bytes_.failed) {
      return damaged(bytes_.file.error());
    }
    const std::string_view words(archive_error_string(reader_.get()));
    return damaged(words.starts_with("Truncated") ? "it ends before its end mark"
                                                  : "it is no tar archive, or a damaged one");
  }

  Result<void> read_entries() {
    archive_read_support_format_tar(reader_.get());
    if (archive_read_open(reader_.get(), &bytes_, nullptr, TarBytes::read_next, nullptr) !=
        ARCHIVE_OK) {
      return damaged();
    }
    struct ::archive_entry* entry = nullptr;
    bool sound = true;
    while (next_entry(reader_.get(), entry, sound)) {
      TROUPE_TRY(read_entry(entry));
    }
    if (!sound) {
      return damaged();
    }
    do {  // to the end, so that gzip's own checksum is compared
      if (!bytes_.read()) {
        return damaged();
      }
    } while (!bytes_.piece.empty());
    return bytes_.marked ? Result<void>() : damaged("it ends before its end mark");
  }

  Result<void> read_entry(struct ::archive_entry* entry) {
    const fs::path name = entry_name(entry);
    if (leads_outside(name)) {
      return damaged(concat("it has a file called ", name.string(), ", which leads outside"));
    }
    const auto wanted = std::find(names_.begin(), names_.end(), name.filename().string());
    const bool regular =
        archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr;
    if (wanted == names_.end() || !regular) {
      return {};
    }
    if (std::find(written_.begin(), written_.end(), *wanted) != written_.end()) {
      return damaged(concat("it has ", *wanted, " twice"));
    }
    auto out = OutputFile::create(part(*wanted));
    TROUPE_TRY(out);
    written_.push_back(*wanted);
    const void* piece = nullptr;
    std::size_t size = 0;
    la_int64_t at = 0;
    int code = ARCHIVE_OK;
    while (!(*out)->failed() &&
           (code = archive_read_data_block(reader_.get(), &piece, &size, &at)) == ARCHIVE_OK &&
           at == (*out)->bytes()) {
      (*out)->write({static_cast<const char*>(piece), size});
    }
    if (code != ARCHIVE_OK && code != ARCHIVE_EOF) {
      return damaged();
    }
    if (!(*out)->failed() && (*out)->bytes() != archive_entry_size(entry)) {
      return damaged(concat("its ", *wanted, " has holes"));  // which could be of any length
    }
    return (*out)->close();
  }

  fs::path path_;
  std::span<const std::string_view> names_;
  fs::path folder_;
  NamesInUtf8 names_in_utf8_;
  TarBytes bytes_;
  ArchiveReader reader_{archive_read_new()};
  std::vector<std::string_view> written_;
};

Error zip_error(std::string what) {
  return {ErrorKind::data, std::move(what)};
}

/// The entry that `reader` is at; `most`: bytes that it can have.
Result<Bytes> unpacked(struct ::archive* reader, struct ::archive_entry* entry, std::size_t most) {
  const auto wrong = [&](const std::string& what) {
    return zip_error(concat("its member ", json_string(entry_name(entry)), " ", what));
  };
  if (archive_entry_is_encrypted(entry) != 0) {
    return wrong("is encrypted");
  }
  Bytes out;
  if (const la_int64_t size = archive_entry_size(entry);
      size > 0 && static_cast<std::size_t>(size) <= most) {
    out.reserve(static_cast<std::size_t>(size));
  }
  for (;;) {
    const void* piece = nullptr;
    std::size_t size = 0;
    la_int64_t at = 0;
    const int code = archive_read_data_block(reader, &piece, &size, &at);
    if (code == ARCHIVE_EOF) {
      return out;
    }
    if (code != ARCHIVE_OK) {
      return wrong(concat("is damaged: ", archive_error_string(reader)));
    }
    if (size > most - out.size()) {
      return wrong(concat("inflates to more than ", kDeflateMost, " times the archive's size"));
    }
    const auto* const begin = static_cast<const std::uint8_t*>(piece);
    out.insert(out.end(), begin, begin + size);
  }
}

}  // namespace

Result<void> unpack(const fs::path& archive,
                    std::span<const std::string_view> names,
                    const fs::path& folder) {
  return Unpacking(archive, names, folder).run();
}

Result<std::optional<Bytes>> unzip_if_there(const Bytes& archive,
                                            std::string_view name,
                                            std::vector<std::string>* others) {
  const NamesInUtf8 names_in_utf8;
  const ArchiveReader reader(archive_read_new());
  archive_read_support_format_zip_seekable(reader.get());
  if (archive_read_open_memory(reader.get(), archive.data(), archive.size()) != ARCHIVE_OK) {
    return zip_error("it is no zip archive, or one that is empty or cut short");
  }
  struct ::archive_entry* entry = nullptr;
  bool sound = true;
  while (next_entry(reader.get(), entry, sound)) {
    const std::string there = entry_name(entry);
    if (there == name) {
      auto member = unpacked(reader.get(), entry, kDeflateMost * archive.size());
      TROUPE_TRY(member);
      return std::optional<Bytes>(*std::move(member));
    }
    if (others && others->size() < kNamesShown) {
      others->push_back(there);
    }
  }
  if (!sound) {
    return zip_error(
        concat("it is no zip archive, or a damaged one: ", archive_error_string(reader.get())));
  }
  return std::optional<Bytes>();
}

Result<Bytes> unzip(const Bytes& archive, std::string_view name) {
  std::vector<std::string> others;
  auto member = unzip_if_there(archive, name, &others);
  TROUPE_TRY(member);
  if (!*member) {
    return zip_error(concat("it has no member ",
                            json_string(name),
                            "; it has ",
                            others.empty() ? "none" : joined(others, ", ", json_string)));
  }
  return **std::move(member);
}

}  // namespace troupe
