// For the prebuilt addon: what a libstdc++ and a libgcc that are linked in want of a glibc newer than 2.28. Defined here, the linker
// asks the system's for none of it. test/repo/installed.test.ts holds the result to 2.28.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/single_threaded.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#if defined(__aarch64__)
#define ROCE_FIRST_GLIBC "GLIBC_2.17"
#else
#define ROCE_FIRST_GLIBC "GLIBC_2.2.5"
#endif

extern "C" {

/// 2.34, before that in libpthread, which Node has loaded: asked for by its first version, which both have.
__asm__(".symver firstCreate, pthread_create@" ROCE_FIRST_GLIBC);
__asm__(".symver firstDetach, pthread_detach@" ROCE_FIRST_GLIBC);
__asm__(".symver firstJoin, pthread_join@" ROCE_FIRST_GLIBC);
int firstCreate(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept;
int firstDetach(pthread_t) noexcept;
int firstJoin(pthread_t, void**);
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) noexcept {
  return firstCreate(thread, attributes, run, argument);
}
int pthread_detach(pthread_t thread) noexcept { return firstDetach(thread); }
int pthread_join(pthread_t thread, void** result) { return firstJoin(thread, result); }

/// 2.32. Whether counts of references need no atomic instructions: Node always has threads.
char __libc_single_threaded = 0;

/// 2.36. libstdc++'s random_device: like glibc's, it has no way to report an error.
uint32_t arc4random() noexcept {
  uint32_t word;
  if (getrandom(&word, sizeof word, 0) != sizeof word) std::abort();
  return word;
}

/// 2.34, before that in libpthread. libgcc takes its locks where this is not null, and never calls it.
int __pthread_key_create(pthread_key_t*, void (*)(void*)) { return EAGAIN; }

/// 2.34, before that in libpthread. One lock for all: the initializers of libstdc++ and libgcc wait for no other thread.
int pthread_once(pthread_once_t* done, void (*initialize)()) {
  static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  if (__atomic_load_n(done, __ATOMIC_ACQUIRE) != 0) return 0;
  struct Guard {
    Guard() { pthread_mutex_lock(&lock); }
    ~Guard() { pthread_mutex_unlock(&lock); }
  } const guard;
  if (*done == 0) {
    initialize();
    __atomic_store_n(done, 1, __ATOMIC_RELEASE);
  }
  return 0;
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE
namespace {

struct Search {
  uintptr_t address;
  dl_find_object* result;
};

int findObject(dl_phdr_info* object, size_t, void* data) {
  const auto& search = *static_cast<const Search*>(data);
  bool isHere = false;
  const ElfW(Phdr)* frames = nullptr;
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    if (header.p_type == PT_GNU_EH_FRAME) frames = &header;
    if (header.p_type != PT_LOAD) continue;
    const uintptr_t start = object->dlpi_addr + header.p_vaddr;
    if (search.address - start >= header.p_memsz) continue;
    isHere = true;
    search.result->dlfo_map_start = reinterpret_cast<void*>(start);
    search.result->dlfo_map_end = reinterpret_cast<void*>(start + header.p_memsz);
  }
  if (!isHere) return 0;
  if (!frames) return -1;
  search.result->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + frames->p_vaddr);
  return 1;
}

}  // namespace

/// 2.35. Where the unwinder finds the frames of an address: of what libgcc reads of the result, all.
int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<uintptr_t>(address), result};
  *result = {};
  return dl_iterate_phdr(findObject, &search) == 1 ? 0 : -1;
}
#endif
}
