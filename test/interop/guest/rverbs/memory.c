/* Memory regions, each between two guard areas: what is written past an end shows there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rverbs.h"

#define PAGE 4096
#define GUARD_SEED 0x6775617264ull /* the pattern both guards are filled with */

static struct table regions = { .what = "mr" };

struct region *region_of(uint64_t handle)
{
    return find(&regions, handle);
}

/* The pattern of harness/pattern.ts: a 32-bit linear congruential generator, its top byte each. */
static void fill(uint8_t *bytes, size_t length, uint32_t seed)
{
    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525 + 1013904223;
        bytes[i] = seed >> 24;
    }
}

/* mr size [pd=0] [misalign=0: start so many bytes into a page] [guard=4096] [access=LOCAL_WRITE,…] [seed: fill]
 * [iova] → mr, address, lkey, rkey */
void cmd_mr(void)
{
    size_t length = required_number("size"), guard = number("guard", PAGE), misalign = number("misalign", 0);
    size_t before = (guard + PAGE - 1) / PAGE * PAGE + misalign;
    struct ibv_pd *pd = find(&pds, number("pd", 0));
    int access = flags_of(access_names, "access");
    uint8_t *map = mmap(NULL, before + length + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        fail(errno, "mmap of %zu bytes", before + length + guard);
    struct region *region = calloc(1, sizeof *region);
    region->memory = map + before;
    region->length = length;
    region->guard = guard;
    fill(region->memory - guard, guard, (uint32_t)GUARD_SEED);
    fill(region->memory + length, guard, (uint32_t)GUARD_SEED);
    if (has("seed"))
        fill(region->memory, length, number("seed", 0));
    region->address = number("iova", (uintptr_t)region->memory);
    region->mr = has("iova") ? ibv_reg_mr_iova(pd, region->memory, length, region->address, access)
                             : ibv_reg_mr(pd, region->memory, length, access);
    if (!region->mr)
        fail(errno, "ibv_reg_mr");
    region->lkey = region->mr->lkey;
    region->rkey = region->mr->rkey;
    put_number("mr", add(&regions, region));
    put_hex("address", region->address);
    put_number("lkey", region->lkey);
    put_number("rkey", region->rkey);
}

/* dereg_mr mr: the memory stays readable */
void cmd_dereg_mr(void)
{
    struct region *region = region_of(required_number("mr"));
    if (!region->mr)
        fail(EINVAL, "deregistered already");
    int error = ibv_dereg_mr(region->mr);
    if (error)
        fail(error, "ibv_dereg_mr");
    region->mr = NULL;
}

/* `length` bytes of mr from its offset, which counts from the region's start and reaches into the guards. */
static uint8_t *range(const struct region *region, size_t length)
{
    int64_t offset = number("offset", 0), guard = region->guard, end = region->length + guard;
    if (offset < -guard || length > region->length + 2 * region->guard || offset + (int64_t)length > end)
        fail(ERANGE, "offset %lld, length %zu leaves region and guards", (long long)offset, length);
    return region->memory + offset;
}

static uint8_t *given_range(size_t *length)
{
    const struct region *region = region_of(required_number("mr"));
    *length = number("length", region->length);
    return range(region, *length);
}

/* fill mr seed [offset=0] [length=all] */
void cmd_fill(void)
{
    size_t length;
    uint8_t *bytes = given_range(&length);
    fill(bytes, length, required_number("seed"));
}

/* write mr hex [offset=0] */
void cmd_write(void)
{
    size_t length = strlen(required_text("hex")) / 2;
    required_bytes("hex", range(region_of(required_number("mr")), length), length);
}

/* read mr [offset=0] [length=all] → hex */
void cmd_read(void)
{
    size_t length;
    const uint8_t *bytes = given_range(&length);
    put_bytes("hex", bytes, length);
}

/* sha256 mr [offset=0] [length=all] → sha256 */
void cmd_sha256(void)
{
    size_t length;
    const uint8_t *bytes = given_range(&length);
    uint8_t digest[32];
    sha256(bytes, length, digest);
    put_bytes("sha256", digest, sizeof digest);
}
