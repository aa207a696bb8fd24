#include "apps/plot/drawing.hpp"

#include "kernels/wording.hpp"
#include "runtime/record/output_file.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <optional>
#include <vector>

extern char** environ;

namespace troupe {
namespace {

/// Exit status of `program SCRIPT` in `folder`; -1: it was ended; nothing: there is no such program.
std::optional<int> run_plotter(const std::filesystem::path& folder,
                               std::string script,
                               std::string program) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  // Its warnings are about fonts and their caches; the script is there for who wants to see them.
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  std::string plain = "--default-settings";  // nobody's own start-up file
  std::array<char*, 4> argv{program.data(), plain.data(), script.data(), nullptr};
  pid_t process = -1;
  const int failure =
      posix_spawnp(&process, program.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failure == ENOENT) {
    return {};
  }
  int status = 0;
  if (failure != 0 || waitpid(process, &status, 0) != process || !WIFEXITED(status)) {
    return -1;
  }
  return WEXITSTATUS(status);
}

}  // namespace

Result<void> draw_figure(const std::filesystem::path& folder,
                         const Figure& figure,
                         const std::string& program) {
  const std::string script = figure.stem + ".gnuplot";
  const std::string drawn = concat(figure.stem, ".svg, .png and .pdf");
  const std::string later = concat("; `gnuplot ", script, "` in ", folder.string());
  std::error_code code;
  for (const char* kind : {".svg", ".png", ".pdf"}) {  // of an earlier drawing
    std::filesystem::remove(folder / (figure.stem + kind), code);
  }
  TROUPE_TRY(write_file(folder / script, figure_script(figure)));
  const std::optional<int> status = run_plotter(folder, script, program);
  if (!status) {
    return Error{ErrorKind::lost,
                 fill_in("{} are not drawn, as there is no {} (Debian's package is gnuplot-nox){} "
                         "draws them later",
                         drawn,
                         program,
                         later)};
  }
  if (*status != 0) {
    return Error{ErrorKind::lost,
                 concat(drawn, " are not drawn, as ", program, " failed", later, " says why")};
  }
  if (!std::filesystem::exists(folder / (figure.stem + ".pdf"), code)) {
    return Error{ErrorKind::lost,
                 concat(figure.stem,
                        ".pdf is not drawn, as this ",
                        program,
                        " has no terminal pdfcairo (that of Debian's gnuplot-nox has it)")};
  }
  return {};
}

void remove_figures(const std::filesystem::path& folder, std::string_view stem) {
  std::vector<std::filesystem::path> old;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    const std::filesystem::path& path = entry.path();
    const std::string kind = path.extension().string();
    const bool drawn = kind == ".gnuplot" || kind == ".svg" || kind == ".png" || kind == ".pdf";
    if (drawn && path.stem().string().starts_with(stem)) {
      old.push_back(path);
    }
  }
  for (const std::filesystem::path& path : old) {
    std::filesystem::remove(path, code);
  }
}

}  // namespace troupe
