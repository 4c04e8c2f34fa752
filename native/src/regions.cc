#include "regions.h"

namespace roce {
namespace {

/// Regions of a table.
constexpr uint32_t kMost = 1 << 24;

}  // namespace

void Regions::begin(Napi::Env env, Napi::Value views) {
  begin(env);
  views_ = views;
  bool isArray = false;
  if (napi_is_array(env, views, &isArray) != napi_ok || !isArray)
    throw typeError(env, "regionViews must be an array");
  if (length() > kMost) throw rangeError(env, "regionViews must have at most 2^24 elements");
}

void Regions::beginBound(Napi::Env env, const Napi::ObjectReference& views) {
  begin(env);
  views_ = nullptr;
  bound_ = &views;
}

void Regions::begin(Napi::Env env) {
  // A getter among the views, of a batch that is being read: its list would go under it.
  if (fetching_) throw typeError(env, "regionViews must not have a getter that starts another batch");
  for (const Wanted& wanted : wanted_) slots_[wanted.region] = 0;
  wanted_.clear();
  env_ = env;
  given_ = nullptr;
}

napi_value Regions::views() {
  if (views_ == nullptr) views_ = bound_->Value();
  return views_;
}

uint32_t Regions::length() {
  uint32_t length = 0;
  return napi_get_array_length(env_, views(), &length) == napi_ok ? length : 0;
}

void Regions::want(uint32_t region) {
  if (region >= slots_.size()) {
    const uint32_t known = length();
    if (region >= known || known > kMost) return;
    slots_.resize(known);
  }
  if (slots_[region] != 0) return;
  wanted_.push_back({region, nullptr, {}});
  slots_[region] = static_cast<uint32_t>(wanted_.size());
}

bool Regions::fetch() {
  if (given_ != nullptr && wanted_.size() == 1) {
    wanted_[0].view = given_;
  } else {
    bool fetched = true;
    fetching_ = true;
    for (Wanted& wanted : wanted_)
      fetched = fetched && napi_get_element(env_, views(), wanted.region, &wanted.view) == napi_ok;
    fetching_ = false;
    if (!fetched) return false;
  }
  for (Wanted& wanted : wanted_)
    if (!readBytes(env_, wanted.view, wanted.memory)) wanted.memory = {};
  return true;
}

}  // namespace roce
