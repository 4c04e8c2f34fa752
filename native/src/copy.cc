// copyBatch and copier: payload from the receive slab into regions, every range checked.
#include <memory>
#include <type_traits>
#include <utility>

#include "addon.h"
#include "arguments.h"
#include "bound.h"
#include "layout.h"
#include "ordered_copy.h"

namespace roce {
namespace {

/// A word of an array that another thread might be writing: read exactly once.
uint32_t load(const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

/// Notes the regions of the entries and fetches them. @returns false with an exception pending
template <class Views>
bool fetchRegions(Regions& regions, Napi::Env env, const Views& views, const Words& list, uint32_t count) {
  if (count > list.length / copy::kWords) throw rangeError(env, "count must be at most the entries of list");
  if constexpr (std::is_same_v<Views, Napi::ObjectReference>)
    regions.beginBound(env, views);
  else
    regions.begin(env, views);
  for (uint32_t i = 0; i < count; i++) regions.want(load(list.data[size_t{i} * copy::kWords + copy::region]));
  return regions.fetch();
}

/// @returns the index of the first entry that is wrong, else `count`
uint32_t copyEntries(const Regions& regions, const Bytes& slab, const Words& list, uint32_t count) {
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
    orderedCopy(target.data + offset, slab.data + source, length);
  }
  return done;
}

/// copyBatch(slab, regionViews, list, count): the index of the first entry that is wrong, else `count`.
/// All entries before that one have been copied.
Napi::Value copyBatch(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  bytesArgument(info, 0, "slab");
  Words list = wordsArgument(info, 2, "list");
  const uint32_t count = integerArgument(info, 3, "count", 0x7fff'ffff);
  Regions& regions = Addon::of(env).regions;
  if (!fetchRegions(regions, env, info[1], list, count)) return {};
  // A getter among the views may have detached the others: their addresses are read after that.
  const Bytes slab = bytesArgument(info, 0, "slab");
  list = wordsArgument(info, 2, "list");
  return Napi::Number::New(env, copyEntries(regions, slab, list, count));
}

/// Slab and list, looked up once. Its function owns it.
struct BoundCopy {
  Bytes slab;
  Words list;
  Napi::ObjectReference views;
  Napi::ObjectReference kept;

  napi_value call(const BoundCall& call) {
    const uint32_t count = integerArgument(call.env, call.arguments[0], "count", 0x7fff'ffff);
    Regions& regions = Addon::of(call.env).regions;
    if (!fetchRegions(regions, call.env, views, list, count)) return nullptr;
    return call.number(copyEntries(regions, slab, list, count));
  }
};

/// copier(slab, regionViews, list): a function of `count`.
Napi::Value copier(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto bound = std::make_unique<BoundCopy>();
  bound->slab = bytesArgument(info, 0, "slab");
  bound->list = wordsArgument(info, 2, "list");
  if (!info[1].IsArray()) throw typeError(env, "regionViews must be an array");
  bound->kept = keepShared(info, {0, 2});
  bound->views = Napi::Persistent(info[1].As<Napi::Object>());
  return functionOf(env, std::move(bound), "copy");
}

}  // namespace

void exportCopy(Napi::Env env, Napi::Object exports) {
  exports.Set("copyBatch", Napi::Function::New<copyBatch>(env, "copyBatch"));
  exports.Set("copier", Napi::Function::New<copier>(env, "copier"));
}

}  // namespace roce
