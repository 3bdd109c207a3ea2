// Whole files in and out. A file that is written is either the old one or the new one, never a part:
// it is written beside its place under a temporary name and renamed.
#pragma once

#include <string>
#include <string_view>

#include "ir/support/result.h"

namespace stepc {

// `synced` survives a power cut (fsync of file and folder); `unsynced` is for what can be made again.
enum class Durability { synced, unsynced };

Result<std::string> read_file(const std::string& path);
Status write_file_atomic(const std::string& path, std::string_view bytes, Durability durability = Durability::synced);
// Makes the folder and its parents where they are missing.
Status make_folder(const std::string& path);

}  // namespace stepc
