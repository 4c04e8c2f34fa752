/** The files next to a capture: the commands, what each side printed, and what follows from it. */
import { WC_STATUS_NAMES, type WcStatusName } from '@node-roce/transport';
import type { Side } from './trace.ts';

/** A completion as rxprobe prints it. */
export interface PrintedCompletion {
  /** ms since the program's start of the exchange. */
  time: number;
  wrId: number;
  status: WcStatusName;
  opcode?: string;
  byteLen?: number;
  immediate?: number;
  /** `wc_flags` of a receive. */
  flags?: number;
  /** CRC-32 of the received or read data, where it is printed. */
  dataCrc?: number;
}

/** The attributes of the two queue pairs that rxprobe prints before it begins. */
interface ProbeQp {
  qpn: number;
  psn: number;
  rkey: number;
  windowKey: number;
  address: bigint;
}

export interface Sidecar {
  /** Command line of each side, in words. */
  command: Record<Side, string[]>;
  output: Record<Side, string>;
  /** Packets that this side sends may be lost, damaged or delayed before the capture sees them. */
  isLossy: Record<Side, boolean>;
  /** B's host drops RoCE packets on their way in: its responder never saw what the capture shows. */
  blackhole: boolean;
  isProbe: boolean;
  completions: Record<Side, PrintedCompletion[]>;
  /** Those of BIND_MW on B, before the exchange began. */
  binds: PrintedCompletion[];
  probe: Record<Side, ProbeQp | undefined>;
  /** First PSN by side and QPN, for programs that print it. */
  psns: Record<Side, Map<number, number>>;
  /** CRC-32 of the first 64 KiB of the server's memory at the end. */
  targetCrc?: number;
  /** When further receives were posted, ms. */
  laterReceives?: { time: number; total: number };
}

/** The value after an option, of rxprobe's single-letter ones. */
export function option(command: readonly string[], letter: string): string | undefined {
  const at = command.indexOf(`-${letter}`);
  return at < 0 ? undefined : command[at + 1];
}

export function parseSidecar(text: string): Sidecar {
  const [head, rest = ''] = split(text, '--- output B\n');
  const [outB, outA = ''] = split(rest, '--- output A\n');
  const output = { A: outA, B: outB };
  const command = { A: words(head, 'on A: '), B: words(head, 'on B: ') };
  const setup = { A: words(head, 'setup on A: ').join(' '), B: words(head, 'setup on B: ').join(' ') };
  const later = /^\+([\d.]+)ms posted up to (\d+)/m.exec(outB);
  const target = /target\[0\.\.64K\) crc32=0x([0-9a-f]+)/.exec(outB);
  return {
    command,
    output,
    isLossy: { A: setup.A.includes('netem'), B: setup.B.includes('netem') },
    blackhole: setup.B.includes('ingress'),
    isProbe: command.A[0]?.endsWith('rxprobe') ?? false,
    completions: { A: completionsIn(outA).filter(notBind), B: completionsIn(outB).filter(notBind) },
    binds: completionsIn(outB).filter((completion) => !notBind(completion)),
    probe: { A: probeIn(outA), B: probeIn(outB) },
    psns: { A: psnsIn(outA), B: psnsIn(outB) },
    targetCrc: target ? Number.parseInt(target[1], 16) : undefined,
    laterReceives: later ? { time: Number(later[1]), total: Number(later[2]) } : undefined,
  };
}

function split(text: string, at: string): [string, string | undefined] {
  const index = text.indexOf(at);
  return index < 0 ? [text, undefined] : [text.slice(0, index), text.slice(index + at.length)];
}

function words(head: string, label: string): string[] {
  const line = head.split('\n').find((l) => l.startsWith(label));
  return line === undefined ? [] : line.slice(label.length).trim().split(/\s+/);
}

function probeIn(output: string): ProbeQp | undefined {
  const m = /^local qpn=(\S+) psn=(\S+) rkey=(\S+) lkey=\S+ mwkey=(\S+) addr=(\S+)/m.exec(output);
  if (m === null) return undefined;
  return {
    qpn: Number(m[1]),
    psn: Number(m[2]),
    rkey: Number(m[3]),
    windowKey: Number(m[4]),
    address: BigInt(m[5]),
  };
}

function psnsIn(output: string): Map<number, number> {
  const psns = new Map<number, number>();
  // With RDMA CM, perftest prints PSNs of its own making and the connection manager picks others.
  if (/rdma_cm QPs\s*: ON/.test(output)) return psns;
  for (const m of output.matchAll(/local address:.*?QPN (0x[0-9a-f]+),? PSN (0x[0-9a-f]+)/g)) {
    psns.set(Number(m[1]), Number(m[2]));
  }
  const probe = probeIn(output);
  if (probe !== undefined) psns.set(probe.qpn, probe.psn);
  return psns;
}

const notBind = ({ opcode }: PrintedCompletion) => opcode !== 'BIND_MW';

function completionsIn(output: string): PrintedCompletion[] {
  const completions: PrintedCompletion[] = [];
  for (const line of output.split('\n')) {
    const m = /^wc \+([\d.]+)ms wr_id=(\d+) op=(\S+) status=(\d+)/.exec(line);
    const data = /^ {3}data crc32=0x([0-9a-f]+)/.exec(line);
    if (data !== null) completions.at(-1)!.dataCrc = Number.parseInt(data[1], 16);
    if (m === null) continue;
    const byteLen = /byte_len=(\d+)/.exec(line);
    const flags = /wc_flags=(0x[0-9a-f]+)/.exec(line);
    const immediate = /imm=(0x[0-9a-f]+)/.exec(line);
    completions.push({
      time: Number(m[1]),
      wrId: Number(m[2]),
      status: WC_STATUS_NAMES[Number(m[4])],
      ...(m[3] === '-' ? {} : { opcode: m[3] }),
      ...(byteLen === null ? {} : { byteLen: Number(byteLen[1]) }),
      ...(flags === null ? {} : { flags: Number(flags[1]) }),
      ...(immediate === null ? {} : { immediate: Number(immediate[1]) }),
    });
  }
  return completions;
}
