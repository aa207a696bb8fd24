#include "runtime/data/download.hpp"

#include "kernels/wording.hpp"
#include "runtime/record/sha256.hpp"

#include <curl/curl.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr long kConnectSeconds = 20;
constexpr long kBytesPerSecondMin = 1024;  // on average over Download::stall_seconds
constexpr long kRedirectionsMax = 5;
constexpr int kConnectionsMax = 1000;  // of a server that sends a little and hangs up

Error not_written(const fs::path& path, int code) {
  return {ErrorKind::lost,
          concat(path.string(), " could not be written: ", std::system_category().message(code))};
}

// -- the file on its way --------------------------------------------------------------------------

/// FILE.part, of which there is one writer in all processes.
class PartFile {
 public:
  /// Makes it, or goes on with what an earlier call left.
  static Result<std::unique_ptr<PartFile>> open(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor < 0) {
      return not_written(path, errno);
    }
    auto file = std::unique_ptr<PartFile>(new PartFile(path, descriptor));

    struct stat opened {};

    struct stat named {};

    // Another process may have finished, and given it its name, between the two calls above.
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 || ::fstat(descriptor, &opened) != 0 ||
        ::stat(path.c_str(), &named) != 0 || opened.st_ino != named.st_ino) {
      return data_error("{} is being written by another process; wait for it", path.string());
    }
    file->size_ = opened.st_size;
    return file;
  }

  ~PartFile() { ::close(descriptor_); }

  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  std::int64_t size() const { return size_; }

  /// False: see error().
  bool append(const char* data, std::size_t count) {
    while (count > 0) {
      const ssize_t n = ::write(descriptor_, data, count);
      if (n > 0) {
        data += n;
        count -= static_cast<std::size_t>(n);
        size_ += n;
      } else if (n == 0 || errno != EINTR) {
        failure_ = n == 0 ? ENOSPC : errno;
        return false;
      }
    }
    return true;
  }

  bool clear() {
    if (::ftruncate(descriptor_, 0) != 0) {
      failure_ = errno;
      return false;
    }
    size_ = 0;
    return true;
  }

  /// What could not be written; nullopt where all could.
  std::optional<Error> error() const {
    return failure_ == 0 ? std::nullopt : std::optional(not_written(path_, failure_));
  }

  /// Onto the disk, and then `path`.
  Result<void> rename(const fs::path& path) {
    if (::fsync(descriptor_) != 0 || ::rename(path_.c_str(), path.c_str()) != 0) {
      return not_written(path, errno);
    }
    return {};
  }

 private:
  PartFile(fs::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  fs::path path_;
  int descriptor_;
  std::int64_t size_ = 0;
  int failure_ = 0;  // errno
};

// -- one connection -------------------------------------------------------------------------------

/// How a connection ended.
struct Outcome {
  enum class End : std::uint8_t { whole, again, hopeless };

  End end = End::whole;  // whole: as the server sees it; again: another attempt may do better
  std::string reason{};  // of the other two
};

class Transfer {
 public:
  Transfer(const Download& wanted, PartFile& part)
      : wanted_(wanted), part_(part), before_(part.size()), curl_(curl_easy_init()) {
    TROUPE_CHECK(curl_ != nullptr, "[download] libcurl has no memory");
  }

  ~Transfer() { curl_easy_cleanup(curl_); }

  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  Outcome run() {
    set(CURLOPT_URL, wanted_.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kRedirectionsMax);
    set(CURLOPT_USERAGENT, "troupe");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, kBytesPerSecondMin);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(wanted_.stall_seconds));
    set(CURLOPT_ERRORBUFFER, message_.data());
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    set(CURLOPT_XFERINFODATA, this);
    const std::string range = std::to_string(before_) + "-";
    if (before_ > 0) {
      set(CURLOPT_RANGE, range.c_str());
    }
    return judge(curl_easy_perform(curl_));
  }

 private:
  template <class T>
  void set(CURLoption option, T value) {
    TROUPE_CHECK(curl_easy_setopt(curl_, option, value) == CURLE_OK,
                 "[download] libcurl does not know option ",
                 static_cast<int>(option));
  }

  long status() const {
    long code = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  static std::size_t on_bytes(char* data, std::size_t, std::size_t count, void* self) {
    return static_cast<Transfer*>(self)->take(data, count) ? count : CURL_WRITEFUNC_ERROR;
  }

  bool take(const char* data, std::size_t count) {
    const long code = status();
    if (code != 200 && code != 206) {
      return true;  // a page for people, about the error
    }
    if (code == 200 && !begun_ && !part_.clear()) {  // all of it, even where a part was asked for
      return false;
    }
    begun_ = true;
    if (part_.size() + static_cast<std::int64_t>(count) > wanted_.bytes_max) {
      too_long_ = true;
      part_.clear();
      return false;
    }
    return part_.append(data, count);
  }

  static int on_progress(void* self, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
    static_cast<Transfer*>(self)->tell(total, now);
    return 0;
  }

  void tell(std::int64_t total, std::int64_t now) const {
    if (wanted_.progress && begun_) {
      wanted_.progress(part_.size(), total > 0 ? total + part_.size() - now : 0);
    }
  }

  Outcome judge(CURLcode code) const {
    using End = Outcome::End;
    if (too_long_) {
      return {End::hopeless, concat("it goes on after ", wanted_.bytes_max, " bytes")};
    }
    if (code != CURLE_OK) {
      const bool hopeless = code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
                            code == CURLE_COULDNT_RESOLVE_HOST ||
                            code == CURLE_PEER_FAILED_VERIFICATION ||
                            code == CURLE_SSL_CACERT_BADFILE || code == CURLE_TOO_MANY_REDIRECTS;
      return {hopeless ? End::hopeless : End::again, sentence_of(code)};
    }
    const long answer = status();
    if (answer == 200 || answer == 206 || (answer == 416 && before_ > 0)) {
      return {};  // 416: nothing comes after what is there
    }
    const bool passing = answer >= 500 || answer == 408 || answer == 429;
    return {passing ? End::again : End::hopeless, concat("the server answered ", answer)};
  }

  std::string sentence_of(CURLcode code) const {
    if (code == CURLE_OPERATION_TIMEDOUT) {
      return fill_in(
          "less than {} bytes a second came for {} s", kBytesPerSecondMin, wanted_.stall_seconds);
    }
    if (code == CURLE_PARTIAL_FILE) {
      return "the connection ended too early";
    }
    if (code == CURLE_UNSUPPORTED_PROTOCOL) {
      return "it is, or leads to, neither http nor https";
    }
    if (code == CURLE_TOO_MANY_REDIRECTS) {
      return concat("it is redirected more than ", kRedirectionsMax, " times");
    }
    return message_[0] != '\0' ? message_.data() : curl_easy_strerror(code);
  }

  const Download& wanted_;
  PartFile& part_;
  std::int64_t before_;  // bytes that were there
  CURL* curl_;
  std::array<char, CURL_ERROR_SIZE> message_{};
  bool begun_ = false;
  bool too_long_ = false;
};

void initialise_curl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  TROUPE_CHECK(code == CURLE_OK, "[download] libcurl cannot start: ", curl_easy_strerror(code));
}

}  // namespace

Result<void> download(const Download& wanted) {
  initialise_curl();
  const fs::path part_path = wanted.path.string() + ".part";
  auto opened = PartFile::open(part_path);
  TROUPE_TRY(opened);
  PartFile& part = **opened;
  const auto failed = [&](const std::string& why) {
    if (part.size() == 0) {
      std::error_code ignored;
      fs::remove(part_path, ignored);
    }
    const std::string kept =
        fill_in("; the {} bytes that came are kept in {}, and a next try goes on from there",
                part.size(),
                part_path.string());
    return Error{ErrorKind::data,
                 concat(wanted.url, " could not be fetched: ", why, part.size() > 0 ? kept : "")};
  };
  int idle = 0;  // connections in a row that brought nothing new
  for (int connections = 1;; ++connections) {
    const std::int64_t before = part.size();
    Outcome outcome = Transfer(wanted, part).run();
    if (const auto error = part.error()) {
      return *error;
    }
    const Result<std::string> sha256 = file_sha256(part_path);
    TROUPE_TRY(sha256);
    if (*sha256 == wanted.sha256) {  // however the connection ended
      return part.rename(wanted.path);
    }
    idle = part.size() > before ? 0 : idle + 1;
    if (outcome.end == Outcome::End::whole) {
      if (!part.clear()) {
        return *part.error();
      }
      if (before == 0) {
        return failed(
            concat("its SHA-256 is ", *sha256, ", not ", wanted.sha256, " as it should be"));
      }
      outcome = {Outcome::End::again, "what came over several connections is not the file"};
    }
    if (outcome.end == Outcome::End::hopeless || idle >= wanted.attempts ||
        connections >= kConnectionsMax) {
      return failed(outcome.reason);
    }
    if (wanted.note) {
      wanted.note(outcome.reason + "; trying again");
    }
    if (idle > 0) {
      std::this_thread::sleep_for(
          std::chrono::duration<double>(wanted.pause_seconds * std::ldexp(1.0, idle - 1)));
    }
  }
}

}  // namespace troupe
