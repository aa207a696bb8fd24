// Libraries of CUDA are loaded when they are first called. This needs no GPU.
#include "kernels/cuda/library.hpp"
#include "tests/support/catch.hpp"

#include <stdexcept>
#include <string>

namespace cuda_library_test {

using namespace troupe::cuda;

TEST_CASE("a function of cuBLASLt is found where the build found the library", "[kernels]") {
  REQUIRE(cublas_lt());
  CHECK(std::string(troupe::cuda::cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED)) ==
        "CUBLAS_STATUS_NOT_SUPPORTED");
}

TEST_CASE("a library that is not there is told when something of it is called", "[kernels]") {
  const Library none("libtroupe_has_none_such.so.1", "/nowhere");
  CHECK_FALSE(none);
  CHECK_THROWS_WITH(none.find("anything"),
                    Catch::Contains("libtroupe_has_none_such.so.1 cannot be loaded"));
  CHECK_THROWS_WITH(cublas_lt().find("cublasLtOfNoVersion"),
                    Catch::Contains("has no cublasLtOfNoVersion"));
}

}  // namespace cuda_library_test
