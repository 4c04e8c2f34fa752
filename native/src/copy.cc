// copyBatch: payload from the receive slab into regions, every range checked.
#include <cstring>

#include "addon.h"
#include "arguments.h"
#include "layout.h"

namespace roce {
namespace {

/// A word of an array that another thread might be writing: read exactly once.
uint32_t load(const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

/// copyBatch(slab, regionViews, list, count): the index of the first entry that is wrong, else `count`.
/// All entries before that one have been copied.
Napi::Value copyBatch(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  bytesArgument(info, 0, "slab");
  Words list = wordsArgument(info, 2, "list");
  const uint32_t count = integerArgument(info, 3, "count", 0x7fff'ffff);
  if (count > list.length / copy::kWords) throw rangeError(env, "count must be at most the entries of list");

  Regions& regions = Addon::of(env).regions;
  regions.begin(env, info[1]);
  for (uint32_t i = 0; i < count; i++) regions.want(load(list.data[size_t{i} * copy::kWords + copy::region]));
  if (!regions.fetch()) return {};
  // A getter among the views may have detached the others: their addresses are read after that.
  const Bytes slab = bytesArgument(info, 0, "slab");
  list = wordsArgument(info, 2, "list");

  uint32_t done = 0;
  for (; done < count && done < list.length / copy::kWords; done++) {
    const uint32_t* words = list.data + size_t{done} * copy::kWords;
    const auto word = [words](uint32_t at) { return load(words[at]); };
    const uint32_t source = word(copy::source), length = word(copy::length);
    if (length == 0) continue;
    const uint64_t offset = uint64_t{word(copy::offsetHigh)} << 32 | word(copy::offsetLow);
    const Bytes target = regions.at(word(copy::region));
    if (source > slab.length || length > slab.length - source) break;
    if (offset > target.length || length > target.length - offset) break;
    std::memmove(target.data + offset, slab.data + source, length);
  }
  return Napi::Number::New(env, done);
}

}  // namespace

void exportCopy(Napi::Env env, Napi::Object exports) {
  exports.Set("copyBatch", Napi::Function::New<copyBatch>(env, "copyBatch"));
}

}  // namespace roce
