// Certificates for a small cluster: who may take part in its runs.
//
//   DIR/ca.key, ca.pem           the cluster's authority; stays where it was made
//   DIR/HOST/ca.pem              a folder a host, to be copied there: whom it believes,
//   DIR/HOST/HOST.pem, HOST.key  and how it shows who it is
//
// X.509 with keys of Ed25519. A host's name or address stands in its certificate (subjectAltName), which is good
// for both ends of a connection.
#pragma once

#include "kernels/result.hpp"
#include "runtime/cluster/openssl.hpp"

#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// How long certificates of hosts are good for. An authority's are for ten years.
struct CertificateTerm {
  int days = 365;
  std::time_t from = std::time(nullptr);
};

constexpr int kCertificateDaysMax = 3650;

struct KeyPair {
  OpensslKey key;
  OpensslCertificate certificate;
};

/// A new key with a certificate that it has signed itself: who has it is known by the public key alone. Throws
/// std::runtime_error where OpenSSL cannot make them.
KeyPair make_key_pair(const std::string& name);

/// Makes the folder with a new authority, or takes the one that lies there, and a folder in it for each of
/// `hosts`. Folders have mode 0700, files 0600. Nothing is overwritten. Error: (usage) and nothing has been made,
/// (lost) where something could not be written.
Result<void> make_keys(const std::filesystem::path& folder,
                       const std::vector<std::string>& hosts,
                       const CertificateTerm& term = {});

}  // namespace troupe
