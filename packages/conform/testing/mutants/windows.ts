/** Ways to break memory windows and regions. */
import type { SimSend } from '@node-roce/sim';
import type { Mutant } from '../broken-device.ts';

type Bind = NonNullable<SimSend['bind']>;

const [SEND_ONLY, SEND_ONLY_WITH_INVALIDATE] = [0x04, 0x17];
const [REMOTE_WRITE, MW_BIND] = [1 << 1, 1 << 4];

/** Windows are bound otherwise than asked for. */
const binding = (seenBy: readonly string[], change: (bind: Bind) => Partial<Bind>): Mutant => ({
  seenBy,
  made: (pair) => {
    const postSend = pair.postSend.bind(pair);
    pair.postSend = (request) =>
      postSend(request.bind ? { ...request, bind: { ...request.bind, ...change(request.bind) } } : request);
  },
});

export const windowMutants: Readonly<Record<string, Mutant>> = {
  'a window opens what is behind it': binding(['KEY-12', 'KEY-14'], ({ length }) => ({
    length: length + 64,
  })),
  'a window opens what is before it': binding(['KEY-12', 'KEY-14'], ({ offset, length }) => ({
    offset: offset - 64,
    length: length + 64,
  })),
  'a window begins too late': binding(['KEY-12', 'KEY-14', 'KEY-15', 'KEY-21'], ({ offset, length }) => ({
    offset: offset + 8,
    length: length - 8,
  })),
  'a window has every right': binding(['KEY-19', 'KEY-20'], () => ({ access: 0x0f })),
  'a window has no right to READ': binding(['KEY-19', 'KEY-20'], () => ({ access: REMOTE_WRITE })),
  'a window of type 2 serves each queue pair': { seenBy: ['KEY-13'], windowType: 1 },
  'a SEND invalidates nothing': {
    seenBy: ['KEY-15'],
    hear: ({ invalidateRkey: _, ...packet }) =>
      packet.opcode === SEND_ONLY_WITH_INVALIDATE ? { ...packet, opcode: SEND_ONLY } : packet,
  },
  'a window that was freed stays open': { seenBy: ['KEY-21'], keepsWindows: true },
  'no window can be bound': { seenBy: ['KEY-12', 'KEY-19', 'KEY-20'], access: (bits) => bits & ~MW_BIND },
  'a region keeps its right to be written': { seenBy: ['KEY-11'], access: (bits) => bits | REMOTE_WRITE },
};
