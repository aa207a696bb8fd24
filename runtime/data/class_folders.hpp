// Folders that are named after the classes of the images in them:
//
//   path/rose/1.jpg, path/rose/2.png, path/tulip/1.jpg           test samples are drawn, or of another folder
//   path/train/rose/1.jpg, ..., path/test/rose/7.jpg             or val in place of test
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

struct ClassFile {
  std::filesystem::path path;
  std::int32_t label = 0;  // index of its folder's name
};

struct ClassFolders {
  std::vector<std::string> classes;  // names of the folders, by label
  std::vector<ClassFile> files;      // by label, then by name
};

/// All files of the class folders in `path`. Names that begin with a dot are passed over, and so are files beside
/// the class folders, and what Windows puts there by itself. `classes`: what labels mean; empty: the folders, in
/// the order of their names' bytes. Error (data): it cannot be read, there are no class folders, one is empty or
/// is none of `classes`.
Result<ClassFolders> list_class_folders(const std::filesystem::path& path,
                                        const std::vector<std::string>& classes);

/// Images without classes, all with the label 0: the file `path`, or those of a folder with no folders in it; none
/// where `path` has folders, or is not there. Error (data): it cannot be read or is empty.
Result<std::vector<ClassFile>> list_images_alone(const std::filesystem::path& path);

/// Where training and test samples are. `test` is empty where they are to be drawn from the others.
struct ClassFolderRoots {
  std::filesystem::path train;
  std::filesystem::path test;
  std::vector<std::string> unused{};  // names of folders beside them
};

/// Of `path`, and of `test_path` where that is not empty, or the same folder with `train` in it. Beside `train`, test samples are in a folder that is called test,
/// testing, valid, validation, val, dev or eval, in capitals or not: the first of these.
ClassFolderRoots class_folder_roots(const std::string& path, const std::string& test_path);

}  // namespace troupe
