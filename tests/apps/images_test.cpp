// From a folder of images to the names of the classes of other ones.
#include "tests/runtime/data/image_files.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/csv_fields.hpp"
#include "tests/support/program.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace images_test {

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

void write_bytes(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

/// `count` images of one of two kinds: stripes across or down, of any brightness.
void write_stripes(const std::string& folder, const std::string& name, bool across, int count) {
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Image image =
        painted(20 + at % 5, 22, 3, [&](std::size_t y, std::size_t x, std::size_t c) {
          return 30 + 9 * ((at + c) % 7) + ((across ? y : x) / 3 % 2 == 0 ? 120 : 0);
        });
    const bool jpeg = i % 2 == 1;
    write_bytes(folder + "/" + name + "/" + std::to_string(i) + (jpeg ? ".jpg" : ".png"),
                jpeg ? jpeg_file(image) : png_file(image));
  }
}

Words training(const std::string& verb, const std::string& photos, const std::string& out) {
  return {verb,
          "--quiet",
          "--out",
          out,
          "--set",
          "data.folder.path=" + photos,
          "--set",
          "data.folder.height=16",
          "--set",
          "data.folder.width=16",
          "--set",
          "data.batch_size=16",
          "--set",
          "stop.epochs=8"};
}

}  // namespace

TEST_CASE("a folder of images is trained on, and other images get the names of its classes",
          "[apps]") {
  const Folder folder;
  const std::string photos = folder / "photos";
  write_stripes(photos, "lying", true, 100);
  write_stripes(photos, "standing, \"upright\"", false, 100);
  const std::string run = folder / "run";
  const Said said = run_program(training("sim", photos, run));
  INFO(said.err << said.out);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.out, says("accuracy   100.00 % of the test data"));

  const Said judged = run_program({"eval", run, "--confusion"});
  INFO(judged.err);
  REQUIRE(judged.code == 0);
  CHECK_THAT(judged.out, says("20 test samples") && says("lying") && says("standing, "));

  // Others, brighter ones, without those that were trained on.
  fs::remove_all(photos);
  const std::string more = folder / "more";
  write_stripes(more, "standing, \"upright\"", false, 6);
  const Said predicted = run_program({"predict",
                                      run,
                                      "--probabilities",
                                      "--set",
                                      "data.folder.path=" + more,
                                      "--set",
                                      "data.folder.test_path=" + more});
  INFO(predicted.err);
  REQUIRE(predicted.code == 0);
  CHECK_THAT(
      predicted.out,
      says("sample,file,label,prediction,probability,p_lying,\"p_standing, \"\"upright\"\"\"\n"));
  std::istringstream text(predicted.out);
  int samples = -1;
  for (std::string line; std::getline(text, line); ++samples) {
    const std::string name = "\"standing, \"\"upright\"\"\"";
    const auto first = line.find(',');
    const std::string file =
        "\"" + more + "/standing, \"\"upright\"\"/" + std::to_string(samples) + ".";
    if (samples >= 0) {
      CHECK(line.substr(0, first) == std::to_string(samples));
      CHECK_THAT(line.substr(first + 1), Catch::StartsWith(file));
      CHECK_THAT(line, says("," + name + "," + name + ","));
    }
  }
  CHECK(samples == 6);

  // One image, or a folder of them, has no class.
  const std::string one = more + "/standing, \"upright\"/0.png";
  const Said alone = run_program({"predict", run, "--data", one});
  INFO(alone.err);
  REQUIRE(alone.code == 0);
  CHECK_THAT(alone.out, Catch::StartsWith("sample,file,prediction,probability\n0,\""));
  CHECK_THAT(alone.out, says("0.png\",\"standing, \"\"upright\"\"\","));
  CHECK_THAT(run_program({"eval", run, "--data", one}).err, says("no target to be compared with"));
}

TEST_CASE("a damaged image is refused with exit code 3 before anything is trained", "[apps]") {
  const Folder folder;
  const std::string photos = folder / "photos";
  write_stripes(photos, "a", true, 20);
  write_stripes(photos, "b", false, 20);
  const std::string sound = contents(photos + "/a/1.jpg");
  write_bytes(photos + "/a/1.jpg", sound.substr(0, sound.size() / 2));
  const Said said = run_program(training("run", photos, folder / "run"));
  CHECK(said.code == 3);
  CHECK_THAT(said.err, says("a/1.jpg is not usable: it is a damaged JPEG image: "));
  CHECK_FALSE(fs::exists(folder / "run"));
}

TEST_CASE("a run on images that are decoded as they are needed goes on from its checkpoint",
          "[apps]") {
  const Folder folder;
  const std::string photos = folder / "photos";
  write_stripes(photos, "a", true, 30);
  write_stripes(photos, "b", false, 30);
  const Words more{"--set", "data.folder.memory=0", "--set", "record.checkpoint.every=10"};
  const Said whole = run_program(with(training("sim", photos, folder / "run"), more));
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  const Said kept = run_program(training("sim", photos, folder / "kept"));
  CHECK(digest_of(kept) == digest_of(whole));
  const Said resumed = run_program({"sim", "--resume", folder / "run", "--quiet"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(digest_of(resumed) == digest_of(whole));
}

TEST_CASE("rows of another table go through what the weights were trained on", "[apps]") {
  const Folder folder;
  std::string table = "size,colour,price\n";
  for (int i = 0; i < 80; ++i) {
    table += std::to_string(10 + i) + (i % 2 == 0 ? ",red," : ",blue,") +
             std::to_string(1000 + 20 * i + (i % 2 == 0 ? 300 : 0)) + '\n';
  }
  write_bytes(folder / "houses.csv", table);
  const Said said = run_program({"sim",
                                 "--quiet",
                                 "--out",
                                 folder / "run",
                                 "--set",
                                 "data.csv.path=" + folder / "houses.csv",
                                 "--set",
                                 "data.csv.values=true",
                                 "--set",
                                 "data.csv.categories=[colour]",
                                 "--set",
                                 "data.batch_size=8",
                                 "--set",
                                 "stop.epochs=60"});
  INFO(said.err);
  REQUIRE(said.code == 0);
  write_bytes(folder / "one.csv", "size,colour,price\n50,red,2100\n");
  fs::remove(folder / "houses.csv");
  const auto predict = [&] {
    return run_program({"predict",
                        folder / "run",
                        "--set",
                        "data.csv.path=" + folder / "one.csv",
                        "--set",
                        "data.csv.test_path=" + folder / "one.csv"});
  };
  const Said predicted = predict();
  INFO(predicted.err);
  REQUIRE(predicted.code == 0);
  const std::vector<Words> lines = csv_fields(predicted.out);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == Words{"sample", "line", "target", "prediction"});
  CHECK(lines[1][1] == "2");  // of the file
  CHECK(std::stod(lines[1][2]) == Approx(2100));
  CHECK(std::stod(lines[1][3]) == Approx(2100).margin(150));
  write_bytes(folder / "one.csv", "size,colour,price\n50,green,2100\n");
  const Said strange = predict();
  CHECK(strange.code == 3);
  CHECK_THAT(strange.err,
             says("line 2, column \"colour\": \"green\" did not occur in what the weights were "
                  "trained on"));
}

}  // namespace images_test
