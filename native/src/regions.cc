#include "regions.h"

namespace roce {

void Regions::begin(Napi::Env env, Napi::Value views) {
  constexpr uint32_t kMost = 1 << 24;
  // A getter among the views, of a batch that is being read: its list would go under it.
  if (fetching_) throw typeError(env, "regionViews must not have a getter that starts another batch");
  for (const Wanted& wanted : wanted_) slots_[wanted.region] = 0;
  wanted_.clear();
  env_ = env;
  views_ = views;
  bool isArray = false;
  if (napi_is_array(env, views, &isArray) != napi_ok || !isArray)
    throw typeError(env, "regionViews must be an array");
  if (napi_get_array_length(env, views, &length_) != napi_ok) length_ = 0;
  if (length_ > kMost) throw rangeError(env, "regionViews must have at most 2^24 elements");
}

void Regions::want(uint32_t region) {
  if (region >= length_) return;
  if (region >= slots_.size()) slots_.resize(length_);
  if (slots_[region] != 0) return;
  wanted_.push_back({region, nullptr, {}});
  slots_[region] = static_cast<uint32_t>(wanted_.size());
}

bool Regions::fetch() {
  bool fetched = true;
  fetching_ = true;
  for (Wanted& wanted : wanted_)
    fetched = fetched && napi_get_element(env_, views_, wanted.region, &wanted.view) == napi_ok;
  fetching_ = false;
  if (!fetched) return false;
  for (Wanted& wanted : wanted_)
    if (!readBytes(env_, wanted.view, wanted.memory)) wanted.memory = {};
  return true;
}

}  // namespace roce
