#include "runtime/cluster/keys.hpp"

#include "kernels/wording.hpp"
#include "runtime/cluster/openssl.hpp"
#include "runtime/cluster/tcp.hpp"
#include "runtime/cluster/tls.hpp"

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>
#include <stdexcept>
#include <system_error>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kDay = 24 * 60 * 60;
constexpr std::time_t kClocksDiffer = 300;  // seconds by which a host may be behind
constexpr int kSerialBytes = 16;
constexpr std::size_t kCommonNameMax = 64;

void check_openssl(bool fine, const char* what) {
  if (!fine) {
    throw std::runtime_error(concat("OpenSSL could not make ", what, ": ", openssl_words()));
  }
}

OpensslKey new_key() {
  OpensslKey key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  check_openssl(key != nullptr, "a key");
  return key;
}

void extend(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, what, const_cast<char*>(value.c_str()));
  const bool added = extension && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  check_openssl(added, "an extension of a certificate");
}

/// All but the extensions, and unsigned.
OpensslCertificate begin_certificate(const std::string& name,
                                     EVP_PKEY* key,
                                     std::time_t from,
                                     std::time_t until) {
  OpensslCertificate made(X509_new());
  std::array<unsigned char, kSerialBytes> serial{};
  check_openssl(RAND_bytes(serial.data(), kSerialBytes) == 1, "a number");
  serial[0] =
      static_cast<unsigned char>((serial[0] & 0x3f) | 0x40);  // positive, and of full length
  ASN1_INTEGER* const number = X509_get_serialNumber(made.get());
  check_openssl(ASN1_STRING_set(number, serial.data(), kSerialBytes) == 1, "a number");
  X509_NAME* const subject = X509_get_subject_name(made.get());
  const std::string common = name.substr(0, kCommonNameMax);
  const auto* text = reinterpret_cast<const unsigned char*>(common.c_str());
  check_openssl(
      X509_set_version(made.get(), X509_VERSION_3) == 1 &&
          X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, text, -1, -1, 0) == 1 &&
          ASN1_TIME_set(X509_getm_notBefore(made.get()), from - kClocksDiffer) &&
          ASN1_TIME_set(X509_getm_notAfter(made.get()), until) &&
          X509_set_pubkey(made.get(), key) == 1,
      "a certificate");
  return made;
}

void sign(X509* certificate, X509* issuer, EVP_PKEY* key) {
  check_openssl(X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
                    X509_sign(certificate, key, nullptr) > 0,
                "a signature");
}

KeyPair new_authority(std::time_t from) {
  KeyPair made{.key = new_key(), .certificate = {}};
  std::array<unsigned char, 4> random{};
  check_openssl(RAND_bytes(random.data(), random.size()) == 1, "a name");
  std::string name = "troupe cluster ";
  for (const unsigned char byte : random) {
    name += static_cast<char>('a' + byte % 26);
  }
  made.certificate =
      begin_certificate(name, made.key.get(), from, from + kCertificateDaysMax * kDay);
  X509* const own = made.certificate.get();
  extend(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  extend(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  extend(own, own, NID_subject_key_identifier, "hash");
  sign(own, own, made.key.get());
  return made;
}

OpensslCertificate certificate_of(const std::string& host,
                                  EVP_PKEY* key,
                                  const CertificateTerm& term,
                                  const KeyPair& authority) {
  OpensslCertificate made = begin_certificate(host, key, term.from, term.from + term.days * kDay);
  X509* const own = made.get();
  X509* const issuer = authority.certificate.get();
  extend(own, issuer, NID_basic_constraints, "critical,CA:FALSE");
  extend(own, issuer, NID_key_usage, "critical,digitalSignature");
  extend(own, issuer, NID_ext_key_usage, "serverAuth,clientAuth");
  extend(own, issuer, NID_subject_key_identifier, "hash");
  extend(own, issuer, NID_authority_key_identifier, "keyid:always");
  extend(own, issuer, NID_subject_alt_name, (is_ip(host) ? "IP:" : "DNS:") + host);
  sign(own, issuer, authority.key.get());
  return made;
}

/// `write(BIO*)` writes what stands in the file, which is new and the user's alone.
template <class Write>
void write_new(const fs::path& path, Write write) {
  using File = std::unique_ptr<BIO, OpensslFree<&BIO_free_all>>;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    throw std::system_error(errno, std::system_category(), path.string());
  }
  const File file(BIO_new_fd(descriptor, BIO_CLOSE));
  if (write(file.get()) != 1 || ::fsync(descriptor) != 0) {
    const int number = errno;
    ::unlink(path.c_str());  // half of a key is of no use
    throw std::system_error(number, std::system_category(), path.string());
  }
}

void write_key(const fs::path& path, EVP_PKEY* key) {
  write_new(path, [key](BIO* file) {
    return PEM_write_bio_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

void write_certificate(const fs::path& path, X509* certificate) {
  write_new(path, [certificate](BIO* file) { return PEM_write_bio_X509(file, certificate); });
}

void make_folder(const fs::path& path, std::vector<fs::path>& made) {
  if (::mkdir(path.c_str(), 0700) != 0) {
    throw std::system_error(errno, std::system_category(), path.string());
  }
  made.push_back(path);
}

Error refused(const std::string& why) {
  return {ErrorKind::usage, why};
}

Result<void> check(const fs::path& folder,
                   const std::vector<std::string>& hosts,
                   bool known,
                   int days) {
  if (days < 1 || days > kCertificateDaysMax) {
    return refused(concat("--days: ", days, " is not among 1 ... ", kCertificateDaysMax));
  }
  if (!known && fs::exists(folder)) {
    return refused(concat(folder.string(),
                          " exists and has no ca.pem and ca.key; name a folder that `troupe keys` "
                          "has made, or a new one"));
  }
  if (hosts.empty()) {
    return refused("--hosts: name at least one host");
  }
  std::set<std::string> named;
  for (const std::string& host : hosts) {
    if (!is_host(host) || host == "ca") {
      return refused(concat("--hosts: \"", host, "\" is no name or address of a host"));
    }
    if (!named.insert(host).second || fs::exists(folder / host)) {
      return refused(concat("--hosts: there is ",
                            (folder / host).string(),
                            " already, or it is named twice; nothing is overwritten"));
    }
  }
  return {};
}

void make_host(const fs::path& folder,
               const std::string& host,
               const CertificateTerm& term,
               const KeyPair& authority,
               std::vector<fs::path>& made) {
  const OpensslKey key = new_key();
  make_folder(folder / host, made);
  write_certificate(folder / host / "ca.pem", authority.certificate.get());
  write_certificate(folder / host / (host + ".pem"),
                    certificate_of(host, key.get(), term, authority).get());
  write_key(folder / host / (host + ".key"), key.get());
}

/// New, or what lies in the folder. Error (usage) where that is not sound, or ends too soon.
Result<KeyPair> authority_in(const fs::path& folder,
                             bool known,
                             const CertificateTerm& term,
                             std::vector<fs::path>& made) {
  if (!known) {
    KeyPair fresh = new_authority(term.from);
    make_folder(folder, made);
    write_key(folder / "ca.key", fresh.key.get());
    write_certificate(folder / "ca.pem", fresh.certificate.get());
    return fresh;
  }
  auto key = read_private_key(folder / "ca.key");
  auto certificate = read_certificate(folder / "ca.pem");
  if (!key || !certificate) {
    return key ? certificate.error() : key.error();
  }
  KeyPair found{.key = *std::move(key), .certificate = *std::move(certificate)};
  if (X509_check_private_key(found.certificate.get(), found.key.get()) != 1) {
    return refused(concat((folder / "ca.key").string(), " is not the key of ca.pem beside it"));
  }
  std::time_t until = term.from + term.days * kDay;
  if (X509_cmp_time(X509_get0_notAfter(found.certificate.get()), &until) < 0) {
    return refused(concat("--days: the authority in ",
                          folder.string(),
                          " ends before ",
                          term.days,
                          " days are over; name fewer, or make new keys for all hosts"));
  }
  return found;
}

}  // namespace

KeyPair make_key_pair(const std::string& name) {
  KeyPair made{.key = new_key(), .certificate = {}};
  const std::time_t now = std::time(nullptr);
  made.certificate = begin_certificate(name, made.key.get(), now, now + kDay);
  sign(made.certificate.get(), made.certificate.get(), made.key.get());
  return made;
}

Result<void> make_keys(const fs::path& folder,
                       const std::vector<std::string>& hosts,
                       const CertificateTerm& term) {
  const bool known = fs::exists(folder / "ca.pem") && fs::exists(folder / "ca.key");
  TROUPE_TRY(check(folder, hosts, known, term.days));
  std::vector<fs::path> made;
  try {
    const auto authority = authority_in(folder, known, term, made);
    TROUPE_TRY(authority);
    for (const std::string& host : hosts) {
      make_host(folder, host, term, *authority, made);
    }
  } catch (const std::exception& error) {
    std::error_code code;
    for (const fs::path& path : made) {
      fs::remove_all(path, code);  // so that the second try finds nothing half-made
    }
    return Error{ErrorKind::lost, concat("the keys could not be written: ", error.what())};
  }
  return {};
}

}  // namespace troupe
