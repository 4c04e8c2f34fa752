// State of one environment (the main thread or a worker). There is no other state: the addon is
// loaded by several of them at once.
#pragma once
#include <napi.h>

#include <optional>

#include "crc.h"
#include "features.h"
#include "regions.h"

namespace roce {

struct Addon {
  const Crc* crc = crcBest();
  /// Probed when first asked for.
  const Features& features() {
    if (!features_) features_ = probeFeatures();
    return *features_;
  }
  /// For `copyBatch`.
  Regions regions;

  static Addon& of(Napi::Env env) { return *env.GetInstanceData<Addon>(); }

 private:
  std::optional<Features> features_;
};

/// Exports of the files of the addon.
void exportChecksums(Napi::Env env, Napi::Object exports);
void exportCopy(Napi::Env env, Napi::Object exports);
void exportProcessor(Napi::Env env, Napi::Object exports);
void exportSharedFile(Napi::Env env, Napi::Object exports);

}  // namespace roce
