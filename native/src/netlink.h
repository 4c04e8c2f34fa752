// Parts that readers of rtnetlink(7) share: the socket, the messages that wait at it, attributes.
#pragma once
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <functional>

#include "address.h"

namespace roce {

/// Opens a socket that hears of these groups; `flags` go to socket(2). @throws SystemFailure
int openNetlink(uint32_t groups, int flags);

/// Takes the messages of the kernel that wait at a socket, which does not block. `lost` is called where there were more than the
/// kernel could keep.
void takeMessages(int fd, const std::function<void(const nlmsghdr&)>& message, const std::function<void()>& lost);

/// The attribute of this type, nullptr if there is none.
const rtattr* findAttribute(const rtattr* first, int length, int type);

/// The GID of an address of that family in `length` bytes. False if they are too few, or the family is no IP.
bool gidOf(int family, const void* bytes, size_t length, Gid& gid);

}  // namespace roce
