// Pages that program and device share: parts of mappings that become pages of the device's file, and the program's own again. The offset of a
// page in the file is its address.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "roce.h"

// Pages of one mapping.
struct roce_part {
  uintptr_t start, end;
  uintptr_t low, high;  // Of the mapping.
  int protection;
  off_t offset;  // In the file.
  void *copy;    // For a child: roce_copy_parts.
};

// Not of the heap: its pages may be those that are shared.
struct roce_parts {
  struct roce_part *at;
  size_t count, bytes;
};

uintptr_t roce_page_size(void);
// 0, or −1 where there is no memory for it.
int roce_add_part(struct roce_parts *parts, struct roce_part part);
void roce_free_parts(struct roce_parts *parts);
// Finds the parts of a range that are not in the file yet. 0, or EFAULT where a page can't be shared, EMFILE where no descriptor is left, and
// why; `writes`: the device may.
int roce_private_parts(const struct roce_file *file, uintptr_t start, uintptr_t end, int writes, struct roce_parts *parts,
                       const char **why);
// Whether a range is mapped, and may be read, and written (`writes`). 0, or EFAULT or EMFILE, and why not.
int roce_check_mapped(uintptr_t start, uintptr_t end, int writes, const char **why);
// Finds the parts of a range that are mapped from the file. 0, or −1 where they can't be found.
int roce_shared_parts(const struct roce_file *file, uintptr_t start, uintptr_t end, struct roce_parts *parts);
// Adds a range that is known to be in the file.
void roce_add_whole(struct roce_parts *parts, uintptr_t start, uintptr_t end);
// Whether the stack that runs is in the range, or other data of its thread: they can't be copied under it.
int roce_has_this_stack(uintptr_t start, uintptr_t end);
// Of a mapping in huge pages only whole ones can be moved: the part grows to them. 0, or −1: then all is as before.
int roce_share_part(const struct roce_file *file, struct roce_part *part);
// Gives a part, all of it of the file, back to the program. Whether that was done: else it stays in the file.
int roce_take_back(const struct roce_file *file, const struct roce_part *part);

// Stores of other threads wait, and a child's access finds its copies, from now on.
void roce_handle_faults(void);
// Copies the parts for a child that is about to be made, which has no pages there (MADV_DONTFORK).
void roce_copy_parts(const struct roce_file *file, struct roce_parts *parts);
// Copies a page of them once more.
void roce_copy_again(const struct roce_file *file, uintptr_t page);
// Of the parent: the copies are not needed.
void roce_drop_copies(void);
// Of the child: its copies become its pages.
void roce_adopt_copies(void);
