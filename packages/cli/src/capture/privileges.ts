/** Gives up root, once everything that needs it is open. */

/** The parts of `process` that are needed. They are absent outside of POSIX; @types/node does not know `initgroups`. */
export interface Identity {
  getuid?(): number;
  initgroups?(user: string | number, extraGroup: number): void;
  setgroups?(groups: number[]): void;
  setgid?(id: number): void;
  setuid?(id: number): void;
}

/**
 * Becomes the user who ran sudo(8), for good: user, group and supplementary groups. Does nothing without root, or where sudo
 * was not used.
 *
 * @param env with SUDO_UID, SUDO_GID and SUDO_USER
 * @returns the user's id; undefined if nothing was given up
 * @throws an Error if root could be taken back
 */
export function giveUpRoot(
  env: Readonly<Record<string, string | undefined>>,
  identity: Identity = process as Identity,
): number | undefined {
  const uid = idIn(env.SUDO_UID);
  const gid = idIn(env.SUDO_GID);
  if (identity.getuid?.() !== 0 || uid === undefined || gid === undefined) return undefined;
  try {
    identity.initgroups!(env.SUDO_USER ?? uid, gid);
  } catch {
    // No such user here: then no groups but this one.
    identity.setgroups!([gid]);
  }
  identity.setgid!(gid);
  identity.setuid!(uid);
  try {
    identity.setuid!(0);
  } catch {
    return uid;
  }
  throw new Error('root could not be given up');
}

/** A user's or group's number that is not root's. */
function idIn(text: string | undefined): number | undefined {
  const id = Number(text);
  return text !== undefined && /^\d+$/.test(text) && id > 0 && id < 0xffff_ffff ? id : undefined;
}
