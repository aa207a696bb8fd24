#include "apps/plan/codecs.hpp"

#include "runtime/schemes/codec.hpp"

namespace troupe {

std::string codecs_text(const Blueprint& b) {
  const proto::Codecs& codecs = b.experiment.replicas().codec();
  std::string text;
  const auto direction = [&](const char* name, const CodecScheme& scheme, const char* keeps) {
    if (scheme.codec) {
      text +=
          concat("codec      ",
                 name,
                 " ",
                 scheme.info.name,
                 scheme.bytes.empty() ? "" : "; bytes of a message of n numbers: " + scheme.bytes,
                 keeps,
                 "\n");
    }
  };
  const CodecScheme& down = codec_scheme(codecs.down());
  direction(
      "up",
      codec_scheme(codecs.up()),
      keeps_residual(codecs) ? "; each replica keeps a residual, one copy of the weights" : "");
  direction("down", down, down.whole ? "" : "; the servers keep what replicas have, one copy more");
  return text;
}

}  // namespace troupe
