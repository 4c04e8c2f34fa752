/** Recorded dialogues of the real programs, and variants that a stranger may send. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Random } from '@node-roce/sim';

const FOLDER = join(import.meta.dirname, '../../fixtures/perftest');

/** Messages of one side of a recording. */
export function recorded(name: string, role: 'client' | 'server'): Buffer[] {
  const { turns } = JSON.parse(readFileSync(join(FOLDER, `${name}.json`), 'utf8'));
  return (turns as [string, string][])
    .filter(([who]) => who === role)
    .map(([, hex]) => Buffer.from(hex, 'hex'));
}

/** Messages of a client, and after each of them the bytes that the server has answered by then. */
export interface Dialogue {
  messages: Buffer[];
  answers: number[];
}

/** A recorded client. */
function dialogue(name: string): Dialogue {
  let sum = 0;
  const answers = recorded(name, 'server').map((answer) => {
    sum += answer.length;
    return sum;
  });
  return { messages: recorded(name, 'client'), answers };
}

/** Dialogues that a server of ours plays without data of the client. */
export const DIALOGUE_OF = {
  '6.29-read_lat': dialogue('6.29-read_lat'),
  '6.06-atomic_lat_fa': dialogue('6.06-atomic_lat_fa'),
  '6.29-write_bw': dialogue('6.29-write_bw'),
  '6.29-mlx5-write_bw': dialogue('6.29-mlx5-write_bw'),
};

/** A mutation: its name, and what it makes of the messages. */
type Mutation = (messages: Buffer[], random: Random) => Buffer[];

const below = (random: Random, count: number) => (count > 0 ? random.between(0, count - 1) : 0);
/** One message replaced by others. */
function replace(messages: Buffer[], at: number, ...others: Buffer[]): Buffer[] {
  return [...messages.slice(0, at), ...others, ...messages.slice(at + 1)];
}

const WORDS = [
  '',
  '0',
  '-1',
  '1e9',
  'NaN',
  'Infinity',
  '6.6',
  '6.29',
  '99999',
  '\0\0\0\0',
  '6.29\0x',
  ':::::',
  '０',
  'ffffffff',
];

export const MUTATIONS: Record<string, Mutation> = {
  bit: (messages, random) => {
    const at = below(random, messages.length);
    const copy = Buffer.from(messages[at]);
    copy[below(random, copy.length)] ^= 1 << below(random, 8);
    return replace(messages, at, copy);
  },
  byte: (messages, random) => {
    const at = below(random, messages.length);
    const copy = Buffer.from(messages[at]);
    copy[below(random, copy.length)] = below(random, 256);
    return replace(messages, at, copy);
  },
  extreme: (messages, random) => {
    const at = below(random, messages.length);
    const copy = Buffer.from(messages[at]);
    const from = below(random, copy.length);
    copy.fill(
      [0, 0xff, 0x7f, 0x80, 0x30, 0x3a, 0x20][below(random, 7)],
      from,
      Math.min(copy.length, from + 1 + below(random, 16)),
    );
    return replace(messages, at, copy);
  },
  word: (messages, random) => {
    const at = below(random, messages.length);
    const copy = Buffer.from(messages[at]);
    copy.write(WORDS[below(random, WORDS.length)], below(random, copy.length), 'latin1');
    return replace(messages, at, copy);
  },
  cut: (messages, random) => {
    const at = below(random, messages.length);
    return [...messages.slice(0, at), messages[at].subarray(0, below(random, messages[at].length))];
  },
  drop: (messages, random) => replace(messages, below(random, messages.length)),
  repeat: (messages, random) => {
    const at = below(random, messages.length);
    return replace(messages, at, messages[at], messages[at]);
  },
  swap: (messages, random) => {
    const [a, b] = [below(random, messages.length), below(random, messages.length)];
    return messages.map((one, i) => (i === a ? messages[b] : i === b ? messages[a] : one));
  },
  insert: (messages, random) => {
    const at = below(random, messages.length);
    const more = Buffer.from(Array.from({ length: 1 + below(random, 40) }, () => below(random, 256)));
    const within = below(random, messages[at].length);
    return replace(
      messages,
      at,
      Buffer.concat([messages[at].subarray(0, within), more, messages[at].subarray(within)]),
    );
  },
  noise: (_messages, random) => [
    Buffer.from(Array.from({ length: 1 + below(random, 600) }, () => below(random, 256))),
  ],
};
