/** `roce pingpong` here and an unmodified ibv_*_pingpong in the guest: both run, both have to be content. */
import { spawn } from 'node:child_process';
import { expect } from 'vitest';
import { GID_INDEX, type Guest } from './guest.ts';
import { LINK_ARGUMENTS } from './link.ts';
import { ROCE } from './roce.ts';

/** rxe's counters that show that something went wrong; `completer_retry_err` is checked separately. */
export const TROUBLE = [
  'out_of_seq_request',
  'rcvd_rnr_err',
  'rcvd_seq_err',
  'retry_exceeded_err',
  'retry_rnr_exceeded_err',
  'send_err',
  'send_rnr_err',
];

/** ibv_rc_pingpong, ibv_uc_pingpong, … */
export type PingPongTool = 'rc' | 'uc' | 'ud' | 'srq';

export interface PingPongOptions {
  /** rc unless given. */
  tool?: PingPongTool;
  /** Of ibv_srq_pingpong; 16 unless given. */
  qps?: number;
  version: 4 | 6;
  /** Ours. */
  role: 'server' | 'client';
  /** Datagrams have the port's. */
  mtu?: number;
  /** Bytes of a message. */
  size: number;
  iters: number;
  events?: boolean;
  /** Seconds that our side waits for a message. */
  patience?: number;
}

/** The output of our side. */
export interface PingPongReport {
  type: 'rc' | 'uc' | 'ud';
  bytes: number;
  retransmittedPackets: number;
  icrcErrors: number;
  wrongPages?: number[];
}

/** A TCP port of its own for each exchange. */
let port = 18600;

function roce(args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [ROCE, 'pingpong', '--json', ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (data) => {
    stdout += data;
  });
  child.stderr.on('data', (data) => {
    stderr += data;
  });
  return new Promise((resolve) => {
    child.on('exit', (code) => resolve({ code, stdout, stderr }));
  });
}

/**
 * Over loss, nobody's fault: the guest's program has everything and ends, its last ACK is lost, and our last message is
 * retransmitted to a queue pair that is gone.
 */
export class LastAckLost extends Error {}

/**
 * One run, the contents checked by both programs. Fails unless both end well, with all bytes exchanged.
 * @throws LastAckLost if only that is missing
 */
export async function playPingPong(
  guest: Guest,
  { tool = 'rc', qps = 16, version, role, mtu, size, iters, events = false, patience = 30 }: PingPongOptions,
): Promise<{ report: PingPongReport; stderr: string }> {
  const { address } = guest;
  const host = version === 4 ? address.hostIp4 : address.hostIp6;
  port++;
  const command = [
    `ibv_${tool}_pingpong -d rxe0 -g ${GID_INDEX[version]} -p ${port} -n ${iters} -s ${size} -c`,
    mtu === undefined ? '' : `-m ${mtu}`,
    tool === 'srq' ? `-q ${qps}` : '',
    events ? '-e' : '',
  ].join(' ');
  const figures = { port, size, iters, mtu, timeout: patience };
  const ours = Object.entries(figures)
    .filter(([, value]) => value !== undefined)
    .flatMap(([name, value]) => [`--${name}`, `${value}`]);
  ours.push('--check', '--bind', host, ...LINK_ARGUMENTS);
  if (tool === 'srq') ours.push('--srq', '--num-qp', `${qps}`);
  else ours.push('--type', tool);
  if (events) ours.push('--events');
  const timeout = patience * 2000;

  let theirs: Awaited<ReturnType<Guest['exec']>>;
  let mine: Awaited<ReturnType<typeof roce>>;
  if (role === 'server') {
    const node = roce(ours);
    // The tool tries to connect once; it is asked again until we listen.
    theirs = await guest.exec(`for i in 1 2 3 4 5 6 7 8; do ${command} ${host} && break; sleep 0.3; done`, {
      timeout,
    });
    mine = await node;
  } else {
    // As a server, the tool listens on IPv4 only; the GID that it sends is of the version asked for.
    const server = guest.exec(command, { timeout });
    await guest.must(`for i in $(seq 50); do ss -ltn | grep -q :${port} && exit 0; sleep 0.1; done; exit 1`);
    mine = await roce([...ours, address.ip4]);
    theirs = await server;
  }
  const missesLastAck = mine.code === 1 && mine.stderr.includes('but the acknowledgement of our last one');
  if (!missesLastAck) expect(mine.code, mine.stderr).toBe(0);
  expect(theirs.code, theirs.stdout + theirs.stderr).toBe(0);
  expect(theirs.stdout).not.toContain('invalid data');
  expect(theirs.stdout).toContain(`${2 * size * iters} bytes`);
  if (missesLastAck) throw new LastAckLost(mine.stderr);
  const report = JSON.parse(mine.stdout) as PingPongReport;
  expect(report.bytes).toBe(2 * size * iters);
  if (role === 'server') expect(report.wrongPages).toEqual([]);
  return { report, stderr: mine.stderr };
}
