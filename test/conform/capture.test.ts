/**
 * The passive rules of `roce conform --capture`, held to the captures of the real rxe: nothing in them is a deviation, wherever a capture was made
 * and whatever it lacks. And each rule sees what was altered for it: a rule that cannot fail is no rule.
 */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { judgeCapture, PASSIVE_RULES } from '@node-roce/conform';
import { LinkType, PcapEncoder } from '@node-roce/pcap';
import { openCapture } from '@node-roce/pcap/node';
import {
  buildPacket,
  createRandom,
  formatIpAddress,
  icrcV2,
  type Packet,
  parseFrame,
  psnAdd,
  psnDiff,
  setU24,
  setU64,
  u64,
  writeIcrc,
} from '@node-roce/wire';
import { afterAll, describe, expect, test } from 'vitest';

const captures = join(import.meta.dirname, '../capture/real/captures');
const fixtures = join(import.meta.dirname, '../fixtures/captures');
const folder = mkdtempSync(join(tmpdir(), 'roce-conform-'));
afterAll(() => rmSync(folder, { recursive: true }));

const real = readdirSync(captures).filter((file) => file.endsWith('.pcap.gz'));
/** The host whose end of the link a capture was made at. */
const hostOf = (file: string) =>
  `${file.includes('ipv6') ? 'fd78::' : '10.78.0.'}${/-a\.pcap/.test(file) ? 1 : 2}`;

async function deviationsOf(file: string, at?: string): Promise<string[]> {
  const { hosts } = await judgeCapture(file, { at });
  return hosts.flatMap(({ host, results }) =>
    results
      .filter(({ verdict }) => verdict === 'deviation')
      .map(({ rule, why, notes }) => `${host} ${rule.id} ${why.join(' | ')} (${notes.join('; ')})`),
  );
}

/** A frame of a capture, its packet, and ns since the epoch. */
interface Frame {
  frame: Uint8Array;
  packet: Packet | undefined;
  time: bigint;
}

async function framesOf(file: string): Promise<Frame[]> {
  await using capture = openCapture(join(captures, file));
  const frames: Frame[] = [];
  for await (const batch of capture) {
    for (const { bytes, byteOffset, capturedLength, seconds, nanoseconds } of batch) {
      const frame = bytes.slice(byteOffset, byteOffset + capturedLength);
      const parsed = parseFrame(frame);
      const packet = parsed.ok ? parsed.packet : undefined;
      frames.push({ frame, packet, time: BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds) });
    }
  }
  return frames;
}

function written(frames: readonly Frame[]): string {
  const encoder = new PcapEncoder({ linkType: LinkType.ETHERNET });
  for (const { frame, time } of frames) encoder.packet({ data: frame, timestamp: time });
  const file = join(folder, `${made++}.pcap`);
  writeFileSync(file, encoder.take());
  return file;
}
let made = 0;

/** Where the BTH stands in a frame of IPv4. */
const BTH = 42;
const AETH = BTH + 12;

/** A copy of a frame with other bytes, and a right ICRC. */
function edited(each: Frame, edit: (frame: Uint8Array) => void): Frame {
  const frame = each.frame.slice();
  edit(frame);
  writeIcrc(frame, frame.length - 4, icrcV2(frame, 14, frame.length - 4));
  const parsed = parseFrame(frame);
  return { ...each, frame, packet: parsed.ok ? parsed.packet : undefined };
}

const isReliable = ({ packet }: Frame) => packet?.info.transportName === 'RC';
const isFrom = ({ packet }: Frame, host: string) => packet && formatIpAddress(packet.ip.source) === host;
const isAck = ({ packet }: Frame) => packet?.info.key === 'RC_ACKNOWLEDGE';
const syndromeOf = ({ packet }: Frame) => packet?.extensions.aeth?.syndrome ?? -1;
const isPlainAck = (each: Frame) => isAck(each) && syndromeOf(each) < 0x20;
const isNak = (each: Frame) => isAck(each) && syndromeOf(each) === 0x60;
const isKind = (key: string) => (each: Frame) => each.packet?.info.key === key;
const psnOf = ({ packet }: Frame) => packet!.bth.psn;
const isRequest = ({ packet }: Frame) => isReliable({ packet } as Frame) && packet!.info.isRequest;

/** All frames, that at `index` edited. */
const withEdit = (frames: readonly Frame[], index: number, edit: (frame: Uint8Array) => void): Frame[] => {
  expect(index, 'such a frame').toBeGreaterThanOrEqual(0);
  return frames.map((each, i) => (i === index ? edited(each, edit) : each));
};
const without = (frames: readonly Frame[], index: number): Frame[] => {
  expect(index, 'such a frame').toBeGreaterThanOrEqual(0);
  return frames.filter((_, i) => i !== index);
};

/** Requests that were sent before: their indices. */
function repetitions(frames: readonly Frame[]): number[] {
  const seen = new Set<string>();
  return frames.flatMap((each, i) => {
    if (!isRequest(each)) return [];
    const name = `${isFrom(each, '10.78.0.1')} ${psnOf(each)}`;
    const isKnown = seen.has(name);
    seen.add(name);
    return isKnown ? [i] : [];
  });
}

interface Mutant {
  rule: string;
  text: string;
  file: string;
  make(frames: Frame[]): Frame[];
}

const WRITES_A = 'k61-loss10-write-a.pcap.gz';
const WRITES_B = 'k61-loss10-write-b.pcap.gz';
const READS_A = 'k61-loss10-read-responses-a.pcap.gz';
const READS_B = 'k61-loss10-read-responses-b.pcap.gz';

/** The first request with the PSN that the first sequence NAK names. */
function refused(frames: readonly Frame[]): { nak: number; first: number; again: number } {
  const nak = frames.findIndex(isNak);
  const fits = (each: Frame) => isRequest(each) && psnOf(each) === psnOf(frames[nak]);
  const again = frames.findIndex((each, i) => i > nak && fits(each));
  return { nak, first: frames.findIndex(fits), again };
}

const MUTANTS: Mutant[] = [
  {
    rule: 'TRC-01',
    text: 'a PSN left out at first',
    file: WRITES_A,
    make: (frames) => without(frames, refused(frames).first),
  },
  {
    rule: 'TRC-02',
    text: 'goes back to the packet behind the one that is missing',
    file: WRITES_A,
    make: (frames) => without(frames, refused(frames).again),
  },
  {
    rule: 'TRC-02',
    text: 'leaves out a packet while it goes back',
    file: WRITES_A,
    make(frames) {
      const { again } = refused(frames);
      return without(
        frames,
        frames.findIndex((each, i) => i > again && isRequest(each)),
      );
    },
  },
  {
    rule: 'TRC-03',
    text: 'a FIRST again with another address',
    file: WRITES_A,
    make(frames) {
      const index = repetitions(frames).find((i) => isKind('RC_RDMA_WRITE_FIRST')(frames[i])) ?? -1;
      return withEdit(frames, index, (frame) => setU64(frame, BTH + 12, u64(frame, BTH + 12) + 8n));
    },
  },
  {
    rule: 'TRC-03',
    text: 'a MIDDLE again as a LAST',
    file: WRITES_A,
    make(frames) {
      const index = repetitions(frames).find((i) => isKind('RC_RDMA_WRITE_MIDDLE')(frames[i])) ?? -1;
      return withEdit(frames, index, (frame) => {
        frame[BTH] = 0x08;
      });
    },
  },
  {
    rule: 'TRC-03',
    text: 'a READ again that asks for other bytes',
    file: READS_A,
    make(frames) {
      const seen = new Set<number>();
      const psns = new Map<number, bigint>();
      const index = frames.findIndex((each) => {
        if (!isKind('RC_RDMA_READ_REQUEST')(each)) return false;
        const isRest = seen.size > 0 && !psns.has(psnOf(each)) && psnOf(each) < Math.max(...seen);
        seen.add(psnOf(each));
        psns.set(psnOf(each), each.packet!.extensions.reth!.va);
        return isRest;
      });
      return withEdit(frames, index, (frame) => setU64(frame, BTH + 12, u64(frame, BTH + 12) + 1024n));
    },
  },
  {
    rule: 'TRC-04',
    text: 'a message that ends in the middle',
    file: WRITES_A,
    make: (frames) =>
      withEdit(frames, frames.findIndex(isKind('RC_RDMA_WRITE_MIDDLE')), (frame) => {
        frame[BTH] = 0x08;
      }),
  },
  {
    rule: 'TRC-04',
    text: 'a WRITE shorter than the length in its RETH',
    file: 'k61-one-ack-lost-a.pcap.gz',
    make: (frames) =>
      withEdit(frames, frames.findIndex(isKind('RC_RDMA_WRITE_FIRST')), (frame) => {
        frame[BTH + 12 + 14] += 4;
      }),
  },
  {
    rule: 'TRC-05',
    text: 'no wait after an RNR NAK',
    file: 'k61-rnr-send-a.pcap.gz',
    make(frames) {
      const nak = frames.findIndex((each) => isAck(each) && (syndromeOf(each) & 0x60) === 0x20);
      const again = frames.findIndex(
        (each, i) => i > nak && isRequest(each) && psnOf(each) === psnOf(frames[nak]),
      );
      const [moved] = frames.splice(again, 1);
      frames.splice(nak + 1, 0, { ...moved, time: frames[nak].time + 20_000n });
      return frames;
    },
  },
  {
    rule: 'TRC-06',
    text: 'SENDs beyond the credits',
    file: 'k61-rnr-send-a.pcap.gz',
    make: (frames) =>
      frames.map((each) =>
        isPlainAck(each)
          ? edited(each, (frame) => {
              frame[AETH] = 0;
            })
          : each,
      ),
  },
  {
    rule: 'TRC-11',
    text: 'an ACK of a packet that was not sent',
    file: WRITES_B,
    make: (frames) =>
      withEdit(frames, frames.findIndex(isPlainAck), (frame) =>
        setU24(
          frame,
          BTH + 9,
          psnAdd(0, 5000 + ((frame[BTH + 9] << 16) | (frame[BTH + 10] << 8) | frame[BTH + 11])),
        ),
      ),
  },
  {
    rule: 'TRC-12',
    text: 'an ACK of a packet that is missing',
    file: WRITES_B,
    make: (frames) =>
      withEdit(frames, frames.findIndex(isNak), (frame) => {
        frame[AETH] = 0x1f;
      }),
  },
  {
    rule: 'TRC-13',
    text: 'an ACK that goes back',
    file: WRITES_B,
    make(frames) {
      const index = frames.findLastIndex(isPlainAck);
      const psn = psnAdd(psnOf(frames[index]), -20);
      return withEdit(frames, index, (frame) => setU24(frame, BTH + 9, psn));
    },
  },
  {
    rule: 'TRC-14',
    text: 'a second NAK for a gap',
    file: WRITES_B,
    make(frames) {
      const nak = frames.findIndex((each, i) => isNak(each) && frames.slice(0, i).some(isPlainAck));
      const again = edited({ ...frames[nak], time: frames[nak].time + 300_000n }, (frame) => {
        // Another IPv4 Identification: with the same one it is the frame, seen twice.
        frame[18] ^= 0x55;
      });
      return frames.toSpliced(nak + 1, 0, again);
    },
  },
  {
    rule: 'TRC-14',
    text: 'no NAK for a gap',
    file: 'k61-one-loss-middle-b.pcap.gz',
    make(frames) {
      const { nak, again } = refused(frames);
      // As if the ACK timer had fired.
      const later = frames.map((each, i) => (i >= again ? { ...each, time: each.time + 70_000_000n } : each));
      return without(later, nak);
    },
  },
  {
    rule: 'TRC-14',
    text: 'a NAK with the PSN before the gap',
    file: WRITES_B,
    make(frames) {
      const nak = frames.findIndex((each, i) => isNak(each) && frames.slice(0, i).some(isPlainAck));
      const psn = psnOf(frames.slice(0, nak).findLast(isPlainAck)!);
      return withEdit(frames, nak, (frame) => setU24(frame, BTH + 9, psn));
    },
  },
  {
    rule: 'TRC-15',
    text: 'an MSN that counts one too many',
    file: 'k61-one-ack-lost-b.pcap.gz',
    make: (frames) =>
      withEdit(frames, frames.findLastIndex(isPlainAck), (frame) => {
        frame[AETH + 3]++;
      }),
  },
  {
    rule: 'TRC-16',
    text: 'a response that is LAST too early',
    file: READS_B,
    make(frames) {
      const index = frames.findIndex(isKind('RC_RDMA_READ_RESPONSE_MIDDLE'));
      const middle = frames[index].packet!;
      const last = buildPacket({
        ethernet: { source: '02:00:00:00:00:02', destination: '02:00:00:00:00:01' },
        ip: { source: '10.78.0.2', destination: '10.78.0.1' },
        udp: { sourcePort: 50_000 },
        bth: { opcode: 'RC_RDMA_READ_RESPONSE_LAST', destQp: middle.bth.destQp, psn: middle.bth.psn },
        extensions: { aeth: { syndrome: 0x1f, msn: 1 } },
        payload: new Uint8Array(1024),
      });
      const parsed = parseFrame(last);
      return frames.toSpliced(index, 1, {
        ...frames[index],
        frame: last,
        packet: parsed.ok ? parsed.packet : undefined,
      });
    },
  },
  {
    rule: 'TRC-16',
    text: 'responses that begin with MIDDLE',
    file: READS_B,
    make(frames) {
      const index = frames.findIndex(isKind('RC_RDMA_READ_RESPONSE_FIRST'));
      const first = frames[index].packet!;
      const frame = buildPacket({
        ethernet: { source: '02:00:00:00:00:02', destination: '02:00:00:00:00:01' },
        ip: { source: '10.78.0.2', destination: '10.78.0.1' },
        udp: { sourcePort: 50_000 },
        bth: { opcode: 'RC_RDMA_READ_RESPONSE_MIDDLE', destQp: first.bth.destQp, psn: first.bth.psn },
        payload: new Uint8Array(1024),
      });
      return frames.toSpliced(index, 1, { ...frames[index], frame, packet: undefined });
    },
  },
  {
    rule: 'TRC-16',
    text: 'a response left out',
    file: READS_B,
    make: (frames) => without(frames, frames.findIndex(isKind('RC_RDMA_READ_RESPONSE_MIDDLE'))),
  },
  {
    rule: 'TRC-17',
    text: 'an ACK before the responses of READs',
    file: 'k61-loss8-atomic-b.pcap.gz',
    make(frames) {
      const asked = frames.flatMap((each, i) => (isKind('RC_FETCH_ADD')(each) ? [i] : []));
      // Two in a row that are not answered yet.
      const second = asked.find((i) => asked.includes(i - 1)) ?? -1;
      const { bth } = frames[second].packet!;
      const answer = frames.find(isKind('RC_ATOMIC_ACKNOWLEDGE'))!.packet!;
      const frame = buildPacket({
        ethernet: { source: '02:00:00:00:00:02', destination: '02:00:00:00:00:01' },
        ip: { source: '10.78.0.2', destination: '10.78.0.1' },
        udp: { sourcePort: 50_000 },
        bth: { opcode: 'RC_ACKNOWLEDGE', destQp: answer.bth.destQp, psn: bth.psn },
        extensions: { aeth: { syndrome: 0x1f, msn: 1 } },
      });
      const time = frames[second].time + 1000n;
      return frames.toSpliced(second + 1, 0, { frame, packet: undefined, time });
    },
  },
  {
    rule: 'TRC-21',
    text: 'a CNP without BECN',
    file: 'k61-cnp-write-b.pcap.gz',
    make: (frames) =>
      withEdit(
        frames,
        frames.findLastIndex(({ packet }) => packet?.info.transportName === 'CNP'),
        (frame) => {
          frame[BTH + 4] = 0;
        },
      ),
  },
  {
    rule: 'TRC-21',
    text: 'a CNP with data',
    file: 'k61-cnp-write-b.pcap.gz',
    make: (frames) =>
      withEdit(
        frames,
        frames.findLastIndex(({ packet }) => packet?.info.transportName === 'CNP'),
        (frame) => {
          frame[BTH + 20] = 1;
        },
      ),
  },
  {
    rule: 'TRC-21',
    text: 'CNPs without a marked packet',
    file: 'k61-cnp-write-b.pcap.gz',
    make: (frames) =>
      frames.map((each) => ({
        ...each,
        frame: each.packet ? each.frame.map((byte, i) => (i === 15 ? byte & 0xfc : byte)) : each.frame,
      })),
  },
];

describe('a rule sees what breaks it', () => {
  test.each(MUTANTS)('$rule: $text', async ({ rule, file, make }) => {
    const at = hostOf(file);
    const frames = await framesOf(file);
    expect(await deviationsOf(written(frames), at)).toEqual([]);
    const found = await deviationsOf(written(make([...frames])), at);
    expect(found.map((text) => text.split(' ')[1])).toContain(rule);
  });

  test('each rule has a mutant', () => {
    const seen = new Set(MUTANTS.map(({ rule }) => rule));
    expect(PASSIVE_RULES.map(({ id }) => id).filter((id) => !seen.has(id))).toEqual([]);
  });
});

describe('rxe keeps the rules', () => {
  test('in captures of an unknown place', { tags: ['slow', 'gate'] }, async () => {
    const found = [];
    for (const file of real) found.push(...(await deviationsOf(join(captures, file))));
    for (const file of readdirSync(fixtures)) {
      if (file.endsWith('.pcap')) found.push(...(await deviationsOf(join(fixtures, file))));
    }
    expect(found).toEqual([]);
  });

  test('in captures made next to it', { tags: ['slow', 'gate'] }, async () => {
    const found = [];
    let passed = 0;
    for (const file of real) {
      const at = hostOf(file);
      const judged = await judgeCapture(join(captures, file)).then(({ hosts }) =>
        hosts.some(({ host }) => host === at),
      );
      if (!judged) continue;
      const { hosts } = await judgeCapture(join(captures, file), { at });
      passed += hosts[0].results.filter(({ verdict }) => verdict === 'pass').length;
      found.push(...(await deviationsOf(join(captures, file), at)));
    }
    expect(found).toEqual([]);
    // Silence is no proof: most captures show something of the rules.
    expect(passed).toBeGreaterThan(500);
  });

  test('in captures that begin and end in the middle, and lack packets', async () => {
    const found = [];
    for (const [seed, file] of real.filter((_, i) => i % 5 === 0).entries()) {
      const { between } = createRandom(seed);
      const random = () => between(0, 999) / 1000;
      const frames = await framesOf(file);
      const from = Math.floor(random() * frames.length * 0.4);
      const to = Math.ceil(frames.length * (0.6 + 0.4 * random()));
      const some = frames.slice(from, to).filter(() => random() > 0.04);
      if (some.some(isReliable))
        found.push(...(await deviationsOf(written(some))).map((text) => `${file} ${text}`));
    }
    expect(found).toEqual([]);
  });
});

test('packets that the capture lost make a rule not testable, with the reason', async () => {
  // The first copy of a request is not there, and its ACK is.
  const frames = await framesOf('k61-one-ack-lost-a.pcap.gz');
  const index = frames.findIndex(isKind('RC_RDMA_WRITE_MIDDLE'));
  const { hosts } = await judgeCapture(written(without(frames, index)), { at: '10.78.0.1' });
  const [{ verdict, why }] = hosts[0].results.filter(({ rule }) => rule.id === 'TRC-01');
  expect([verdict, why[0]]).toEqual([
    'not testable',
    expect.stringMatching(/^left out PSNs: once, frame \d+; a loss/),
  ]);
});

describe('no deviation', () => {
  /** The verdict of a rule on a host. */
  async function verdictOf(file: string, rule: string, host: string): Promise<string | undefined> {
    const { hosts } = await judgeCapture(file);
    const results = hosts.find((each) => each.host === host)?.results;
    return results?.find((result) => result.rule.id === rule)?.verdict;
  }

  test('a host whose ICRCs are all wrong: the capture shows other headers than its peer had', async () => {
    const frames = (await framesOf(WRITES_A)).map((each) => {
      if (!isFrom(each, '10.78.0.2')) return each;
      const frame = each.frame.slice();
      frame[frame.length - 1] ^= 0xff;
      return { ...each, frame };
    });
    const file = written(frames);
    expect(await deviationsOf(file, '10.78.0.1')).toEqual([]);
    expect(await verdictOf(file, 'TRC-11', '10.78.0.2')).toBe('pass');
  });

  test('READs of an unknown number of responses', async () => {
    const frames = (await framesOf(READS_B)).filter(isReliable);
    const lengthOf = (each: Frame) => each.packet?.extensions.reth?.length ?? 0;
    const whole = Math.max(...frames.map(lengthOf));
    // Neither responses of a whole packet nor READs that ask for a rest show the path MTU.
    const shows = (each: Frame) =>
      !/RESPONSE_(FIRST|MIDDLE|ONLY)/.test(each.packet?.info.key ?? '') &&
      [0, whole].includes(lengthOf(each));
    const file = written(frames.filter(shows));
    expect(await deviationsOf(file, '10.78.0.2')).toEqual([]);
  });

  test('the last packet again, in the middle of going back', async () => {
    const frames = await framesOf(WRITES_A);
    const { again } = refused(frames);
    const sent = frames.slice(0, again).filter(isRequest);
    const last = sent.reduce((a, b) => (psnDiff(psnOf(b), psnOf(a)) > 0 ? b : a));
    const { time } = frames[again];
    const probe = edited({ ...last, time: time + 300n }, (frame) => {
      frame[18] ^= 0x55;
    });
    const first = edited({ ...frames[again], time: time + 600n }, (frame) => {
      frame[18] ^= 0x33;
    });
    expect(await deviationsOf(written(frames.toSpliced(again + 1, 0, probe, first)), '10.78.0.1')).toEqual(
      [],
    );
  });
});
