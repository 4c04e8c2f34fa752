import { describe, expect, test, vi } from 'vitest';
import { giveUpRoot, type Identity } from './privileges.ts';

const SUDO = { SUDO_UID: '1000', SUDO_GID: '100', SUDO_USER: 'ann' };

/** A process of root, or of `uid`; as the kernel has it, only root can become another user. */
function processOf(uid = 0) {
  let now = uid;
  const calls: unknown[][] = [];
  const note =
    (name: string) =>
    (...args: unknown[]) =>
      void calls.push([name, ...args]);
  const identity = {
    getuid: () => now,
    initgroups: vi.fn(note('initgroups')),
    setgroups: note('setgroups'),
    setgid: note('setgid'),
    setuid(id: number) {
      if (now !== 0 && id !== now) throw new Error('EPERM');
      calls.push(['setuid', id]);
      now = id;
    },
  };
  return { identity: identity as typeof identity & Identity, calls };
}

describe('giveUpRoot', () => {
  test('groups first, the user last', () => {
    const { identity, calls } = processOf();
    expect(giveUpRoot(SUDO, identity)).toBe(1000);
    expect(calls).toEqual([
      ['initgroups', 'ann', 100],
      ['setgid', 100],
      ['setuid', 1000],
    ]);
  });

  test('a user without an entry keeps the one group', () => {
    const { identity, calls } = processOf();
    identity.initgroups.mockImplementation(() => {
      throw new Error('unknown');
    });
    expect(giveUpRoot(SUDO, identity)).toBe(1000);
    expect(calls[0]).toEqual(['setgroups', [100]]);
  });

  test('fails where root can be taken back', () => {
    const { identity } = processOf();
    Object.assign(identity, { setuid: () => {} });
    expect(() => giveUpRoot(SUDO, identity)).toThrow('could not be given up');
  });

  test.each([
    ['without root', 1000, SUDO],
    ['without sudo', 0, {}],
    ['if root ran sudo', 0, { ...SUDO, SUDO_UID: '0' }],
    ['for a user id that is not a number', 0, { ...SUDO, SUDO_UID: '1e3' }],
    ['without a group', 0, { ...SUDO, SUDO_GID: undefined }],
  ])('%s: does nothing', (_name, uid, env) => {
    const { identity, calls } = processOf(uid);
    expect(giveUpRoot(env, identity)).toBeUndefined();
    expect(calls).toEqual([]);
  });
});
