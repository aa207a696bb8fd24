#include "runtime/cluster/tls.hpp"

#include "runtime/cluster/tcp.hpp"

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <poll.h>
#if !defined(__x86_64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <vector>

namespace troupe {
namespace {

namespace fs = std::filesystem;

using File = std::unique_ptr<BIO, OpensslFree<&BIO_free_all>>;

Error refused(const std::string& why) {
  return {ErrorKind::usage, why};
}

/// Instead of asking at the terminal.
int no_passphrase(char* /*into*/, int /*size*/, int /*writes*/, void* /*more*/) {
  return -1;
}

Result<void> check_private(const fs::path& path) {
  struct stat status {};

  if (::stat(path.c_str(), &status) != 0) {
    return refused(
        concat(path.string(), " is missing: it is the key of the certificate beside it"));
  }
  if (status.st_uid != ::geteuid()) {
    return refused(concat(path.string(), " belongs to another user"));
  }
  if ((status.st_mode & 077) != 0) {
    return refused(concat(path.string(), " can be read by others; `chmod 600` it"));
  }
  return {};
}

Result<void> check_dates(const X509* certificate, const fs::path& path) {
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return refused(concat(path.string(), " is not good yet; is this host's clock right?"));
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    return refused(concat(path.string(), " has expired; make a new one with `troupe keys`"));
  }
  return {};
}

/// The one certificate of a folder that is not the authority's.
Result<fs::path> own_certificate(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    if (entry.path().extension() == ".pem" && entry.path().filename() != "ca.pem") {
      found.push_back(entry.path());
    }
  }
  if (code) {
    return refused(concat(folder.string(), " cannot be read: ", code.message()));
  }
  if (!fs::exists(folder / "ca.pem")) {
    return refused(concat((folder / "ca.pem").string(), " is missing: it says whom to believe"));
  }
  if (found.empty() && fs::exists(folder / "ca.key")) {
    return refused(concat(folder.string(),
                          " is the authority's; name the folder of this host that lies in it"));
  }
  if (found.size() != 1) {
    return refused(concat(folder.string(),
                          " has ",
                          found.size(),
                          " certificates beside ca.pem; a host's folder has one, HOST.pem"));
  }
  return found[0];
}

/// What OpenSSL says of a peer's certificate, or of what has come instead.
std::string why_not(SSL* session) {
  const long verdict = SSL_get_verify_result(session);
  std::string words = openssl_words();
  if (verdict != X509_V_OK) {
    return concat("its certificate is not believed: ", X509_verify_cert_error_string(verdict));
  }
  if (words.find("wrong version number") != std::string::npos ||
      words.find("http request") != std::string::npos ||
      words.find("packet length too long") != std::string::npos) {
    return "it does not speak TLS";
  }
  if (words.empty() || words.find("unexpected eof") != std::string::npos) {
    return SSL_is_init_finished(session)
               ? ""
               : "it has closed the connection before it has shown a certificate; where it was "
                 "started without --keys, it needs them";
  }
  return words;
}

bool belongs(X509* certificate, X509* authority, std::string& why) {
  using Store = std::unique_ptr<X509_STORE, OpensslFree<&X509_STORE_free>>;
  using Check = std::unique_ptr<X509_STORE_CTX, OpensslFree<&X509_STORE_CTX_free>>;
  const Store store(X509_STORE_new());
  const Check check(X509_STORE_CTX_new());
  const bool fine = X509_STORE_add_cert(store.get(), authority) == 1 &&
                    X509_STORE_CTX_init(check.get(), store.get(), certificate, nullptr) == 1 &&
                    X509_verify_cert(check.get()) == 1;
  if (!fine) {
    why = X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get()));
  }
  ERR_clear_error();
  return fine;
}

std::string common_name(const X509* certificate) {
  std::array<char, 256> name{};
  X509_NAME_get_text_by_NID(
      X509_get_subject_name(certificate), NID_commonName, name.data(), name.size());
  std::string text = name.data();
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

Error not_believed(Talk how, const std::string& why) {
  switch (how) {
    case Talk::late:
      return {ErrorKind::lost, "it has not shown in time who it is"};
    case Talk::given_up:
      return {ErrorKind::lost, "interrupted"};
    default:
      return {ErrorKind::lost, why};
  }
}

/// AES is the faster one where the processor knows it.
bool has_aes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes");
#else
  return (::getauxval(AT_HWCAP) & HWCAP_AES) != 0;
#endif
}

}  // namespace

Result<OpensslContext> make_tls(X509* certificate, EVP_PKEY* key) {
  const char* const ciphers = has_aes() ? "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
                                        : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
  OpensslContext context(SSL_CTX_new(TLS_method()));
  SSL_CTX* const c = context.get();
  const bool made = c && SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(c, ciphers) == 1 &&
                    SSL_CTX_use_certificate(c, certificate) == 1 &&
                    SSL_CTX_use_PrivateKey(c, key) == 1 &&
                    // No tickets: nothing comes of itself on a stream that waits for its end.
                    SSL_CTX_set_num_tickets(c, 0) == 1;
  if (!made) {
    return refused("TLS cannot be had: " + openssl_words());
  }
  // The end that is slow at AES has its way; the kernel encrypts where it can.
  SSL_CTX_set_options(
      c, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA | SSL_OP_ENABLE_KTLS);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

Result<OpensslKey> read_private_key(const fs::path& path) {
  TROUPE_TRY(check_private(path));
  const File file(BIO_new_file(path.c_str(), "r"));
  OpensslKey key(file ? PEM_read_bio_PrivateKey(file.get(), nullptr, no_passphrase, nullptr)
                      : nullptr);
  if (!key) {
    ERR_clear_error();
    return refused(concat(path.string(), " is no private key that can be read"));
  }
  return key;
}

Result<OpensslCertificate> read_certificate(const fs::path& path) {
  const File file(BIO_new_file(path.c_str(), "r"));
  OpensslCertificate certificate(
      file ? PEM_read_bio_X509(file.get(), nullptr, no_passphrase, nullptr) : nullptr);
  if (!certificate) {
    ERR_clear_error();
    return refused(concat(path.string(), " is no certificate that can be read"));
  }
  return certificate;
}

// -- TlsStream -------------------------------------------------------------------------------------

TlsStream::TlsStream(OpensslSession session, int socket)
    : session_(std::move(session)), socket_(socket) {}

TlsStream::~TlsStream() {
  session_.reset();
  ::close(socket_);
}

ControlStream::Passed TlsStream::passed(int result, std::size_t bytes) {
  if (result == 1) {
    return {.bytes = bytes};
  }
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {.await = POLLIN};
    case SSL_ERROR_WANT_WRITE:
      return {.await = POLLOUT};
    case SSL_ERROR_ZERO_RETURN:
      return {.gone = true};
    default:
      trouble_ = why_not(session_.get());
      return {.gone = true};
  }
}

ControlStream::Passed TlsStream::read(std::span<char> into) {
  ERR_clear_error();
  std::size_t bytes = 0;
  const int result = SSL_read_ex(session_.get(), into.data(), into.size(), &bytes);
  return passed(result, bytes);
}

ControlStream::Passed TlsStream::write(std::span<const char> bytes) {
  ERR_clear_error();
  std::size_t written = 0;
  const int result = SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &written);
  return passed(result, written);
}

void TlsStream::finish() {
  SSL_shutdown(session_.get());
  ERR_clear_error();
  ::shutdown(socket_, SHUT_WR);
}

std::string TlsStream::cipher() const {
  return SSL_get_cipher_name(session_.get());
}

TlsStream::ByKernel TlsStream::by_kernel() const {
  return {.sends = BIO_get_ktls_send(SSL_get_wbio(session_.get())) != 0,
          .reads = BIO_get_ktls_recv(SSL_get_rbio(session_.get())) != 0};
}

std::string TlsStream::peer() const {
  const X509* const certificate = SSL_get0_peer_certificate(session_.get());
  return certificate ? common_name(certificate) : "";
}

Talk TlsStream::shake_hands(const Patience& patience) {
  for (;;) {
    ERR_clear_error();
    const Passed now = passed(SSL_do_handshake(session_.get()), 1);
    if (now.gone || now.bytes > 0) {
      return now.gone ? Talk::gone : Talk::done;
    }
    if (const Talk ready = await(socket_, now.await, patience); ready != Talk::done) {
      return ready;
    }
  }
}

// -- Credentials -----------------------------------------------------------------------------------

Result<Credentials> Credentials::load(const fs::path& folder) {
  const auto path = own_certificate(folder);
  TROUPE_TRY(path);
  fs::path key_path = *path;
  key_path.replace_extension(".key");
  auto key = read_private_key(key_path);
  auto certificate = read_certificate(*path);
  auto authority = read_certificate(folder / "ca.pem");
  for (const Error* error : {key ? nullptr : &key.error(),
                             certificate ? nullptr : &certificate.error(),
                             authority ? nullptr : &authority.error()}) {
    if (error) {
      return *error;
    }
  }
  for (const auto& [one, where] :
       {std::pair(certificate->get(), *path), std::pair(authority->get(), folder / "ca.pem")}) {
    TROUPE_TRY(check_dates(one, where));
  }
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    ERR_clear_error();
    return refused(concat(key_path.string(), " is not the key of the certificate beside it"));
  }
  if (std::string why; !belongs(certificate->get(), authority->get(), why)) {
    return refused(concat(path->string(), " is not of the authority in ca.pem beside it: ", why));
  }
  auto context = make_tls(certificate->get(), key->get());
  TROUPE_TRY(context);
  X509_STORE_add_cert(SSL_CTX_get_cert_store(context->get()), authority->get());
  SSL_CTX_set_verify_depth(context->get(), 1);
  return Credentials(*std::move(context), common_name(certificate->get()));
}

Result<std::unique_ptr<TlsStream>> Credentials::greet(int socket,
                                                      const std::string& host,
                                                      const Patience& patience) const {
  auto stream = std::make_unique<TlsStream>(OpensslSession(SSL_new(context_.get())), socket);
  SSL* const session = stream->session_.get();
  const bool named = is_ip(host)
                         ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str()) == 1
                         : SSL_set1_host(session, host.c_str()) == 1 &&
                               SSL_set_tlsext_host_name(session, host.c_str()) == 1;
  SSL_set_hostflags(session, X509_CHECK_FLAG_NO_WILDCARDS);
  SSL_set_fd(session, socket);
  SSL_set_connect_state(session);
  const Talk said = named ? stream->shake_hands(patience) : Talk::gone;
  if (said != Talk::done) {
    return not_believed(said, stream->trouble());
  }
  return stream;
}

Result<std::unique_ptr<TlsStream>> Credentials::welcome(int socket,
                                                        const Patience& patience) const {
  auto stream = std::make_unique<TlsStream>(OpensslSession(SSL_new(context_.get())), socket);
  SSL_set_fd(stream->session_.get(), socket);
  SSL_set_accept_state(stream->session_.get());
  if (const Talk said = stream->shake_hands(patience); said != Talk::done) {
    return not_believed(said, stream->trouble());
  }
  return stream;
}

}  // namespace troupe
