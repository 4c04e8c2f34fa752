// The memory of the regions that a batch touches. Their views are fetched anew for every batch: an
// ArrayBuffer may have been detached since the last one.
#pragma once
#include <cstdint>
#include <vector>

#include "arguments.h"

namespace roce {

class Regions {
 public:
  /// Starts a batch over `views`, an array of Uint8Array or undefined by region index.
  /// @throws Napi::Error when it is no array or longer than 2^24, or from inside of `fetch`
  void begin(Napi::Env env, Napi::Value views);
  /// The same of views that were seen to be an array, looked up where they are needed. @throws Napi::Error from inside of `fetch`
  void beginBound(Napi::Env env, const Napi::ObjectReference& views);
  /// The caller has the view of the batch's region, if that is one alone: it need not be looked up. After `beginBound`.
  void give(napi_value view) { given_ = view; }
  /// Notes that the batch needs a region. Runs no JavaScript.
  void want(uint32_t region);
  bool wantsAny() const { return !wanted_.empty(); }
  /// Frees the tables; not while a getter in `fetch` runs, which goes through them.
  void release() {
    if (!fetching_) *this = Regions{};
  }
  /// Fetches the views wanted. May run JavaScript (a getter in the array), after which the caller's own
  /// arrays may have moved: it reads their addresses again, and then nothing runs until the batch ends.
  /// @returns false when an exception is pending
  bool fetch();
  /// The memory of a region wanted before; empty when there is none, or it is detached.
  Bytes at(uint32_t region) const {
    return region < slots_.size() && slots_[region] != 0 ? wanted_[slots_[region] - 1].memory : Bytes{};
  }

 private:
  struct Wanted {
    uint32_t region;
    napi_value view;
    Bytes memory;
  };
  void begin(Napi::Env env);
  napi_value views();
  /// Elements of the views.
  uint32_t length();

  napi_env env_ = nullptr;
  /// Null while those of `bound_` were not needed.
  napi_value views_ = nullptr;
  const Napi::ObjectReference* bound_ = nullptr;
  napi_value given_ = nullptr;
  bool fetching_ = false;
  std::vector<Wanted> wanted_;
  /// By region: one more than its place in `wanted_`, or 0.
  std::vector<uint32_t> slots_;
};

}  // namespace roce
