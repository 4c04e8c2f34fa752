/** `roce perf` here and an unmodified program of perftest in the guest: both run, both have to be content, and their figures agree. */
import { spawn } from 'node:child_process';
import { expect, onTestFinished } from 'vitest';
import { LOOK_TWICE, threadsHere, threadsOf } from '../../tiers/hung.ts';
import { PATIENCE } from '../../tiers/patience.mjs';
import { GID_INDEX, type Guest } from './guest.ts';
import { ROCE } from './roce.ts';

export interface PerfCase {
  verb: 'send' | 'write' | 'read' | 'atomic';
  measure: 'bw' | 'lat';
  /** Ours. */
  role: 'server' | 'client';
  /** Of the GIDs. */
  version: 4 | 6;
  service?: 'RC' | 'UC' | 'UD';
  /** Connected by the connection manager. */
  rdmaCm?: boolean;
  /** Options of both sides, in words that both have. */
  options?: string;
  /** Options of our side alone. */
  ours?: string;
  /** Addresses of the dialogue; 4 unless given. */
  dialogue?: 4 | 6;
}

interface Run {
  size: number;
  iterations: number;
  average: number;
  peak?: number;
  messageRate?: number;
  percentiles?: Record<string, number>;
}

/** The output of our side. */
export interface PerfReport {
  measuredBy: string;
  runs: Run[];
  local?: Run;
  remote?: Run;
  retransmittedPackets: number;
  icrcErrors: number;
}

/** The rows of perftest's table: numbers as it printed them, `inf` and `nan` among them. */
function rowsOf(stdout: string): string[][] {
  return stdout
    .split('\n')
    .filter((line) => /^ \d+ +\d+ +(?:\d|inf|-?nan)/.test(line))
    .map((line) => line.trim().split(/\s+/));
}

/** ms that the program of the guest has to end once ours has failed. */
const GRACE = 3000;
/** ms of a run on a quiet machine (`Guest.exec` waits longer), but for one of all sizes: four times the longest. One in which rxe's requester stopped leaves a test the time of others. */
const LONGEST = 25_000;

/** The share of that after which the programs of a run are looked at, which hang, perhaps. */
const LATE = 0.8;

/** What both sides do, in a run that has used up most of its time. */
async function whatTheyDo(guest: Guest): Promise<string> {
  const [ours, theirs, counters] = await Promise.all([
    threadsHere(),
    guest.exec(LOOK_TWICE),
    guest.counters(),
  ]);
  const moved = Object.entries(counters).filter(([, count]) => count > 0);
  const counts = moved.map(([name, count]) => `${name} ${count}`).join(', ');
  return [
    'here:',
    ...ours,
    'in the guest:',
    ...threadsOf(theirs.stdout),
    `rxe, since its start: ${counts}`,
  ].join('\n');
}

/** A port of its own for each run. */
let port = 19_000;

function roce(args: string[]): {
  done: Promise<{ code: number | null; stdout: string; stderr: string }>;
  listens: Promise<void>;
} {
  const child = spawn(process.execPath, [ROCE, 'perf', ...args, '--json'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  // A test that timed out would leave it on the port of all that come after it.
  onTestFinished(() => void child.kill());
  let stdout = '';
  let stderr = '';
  let hears = () => {};
  const listens = new Promise<void>((resolve) => {
    hears = resolve;
  });
  child.stdout.on('data', (data) => {
    stdout += data;
  });
  child.stderr.on('data', (data) => {
    stderr += data;
    if (stderr.includes('waiting for a client')) hears();
  });
  const done = new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve) => {
    child.on('close', (code) => {
      hears();
      resolve({ code, stdout, stderr });
    });
  });
  return { done, listens };
}

/**
 * perftest measures its clock before each row, and gives up where something else had its processor meanwhile (`get_clock.c`): then a
 * latency is `inf`, and a rate 0.
 */
const CLOCKLESS = 'Correlation coefficient';
const isClockless = (stderr: string, row: readonly string[] = []) =>
  stderr.includes(CLOCKLESS) && !row.slice(2).every((cell) => Number(cell) > 0 && Number(cell) < Infinity);

/** One run. Fails unless both programs end with 0. `clockless`: the peer's program could not measure the times of the last row. */
export async function playPerf(
  guest: Guest,
  {
    verb,
    measure,
    role,
    version,
    service = 'RC',
    rdmaCm = false,
    options = '',
    ours = '',
    dialogue = 4,
  }: PerfCase,
): Promise<{ report: PerfReport; rows: string[][]; clockless: boolean }> {
  const { address } = guest;
  port++;
  const host = dialogue === 4 ? address.hostIp4 : address.hostIp6;
  const peer = dialogue === 4 ? address.ip4 : address.ip6;
  const common = `-p ${port} -c ${service} ${rdmaCm ? '-R' : ''} ${options}`;
  const family = dialogue === 6 ? '--ipv6-addr' : '';
  const command = `ib_${verb}_${measure} -d rxe0 -x ${GID_INDEX[version]} -F ${family} ${common}`;
  const bind = version === 4 ? address.hostIp4 : address.hostIp6;
  const args = [verb, measure, ...`--bind ${bind} ${common} ${ours}`.split(' ').filter(Boolean)];
  let theirs: Awaited<ReturnType<Guest['exec']>>;
  let mine: { code: number | null; stdout: string; stderr: string };
  // Where ours has failed, theirs may wait for ever.
  const failed = new AbortController();
  const within = { timeout: options.includes('-a') ? 100_000 : LONGEST, signal: failed.signal };
  // A test that timed out would leave a program that polls to all that come after it.
  onTestFinished(() => failed.abort());
  const settled = (ended: { code: number | null }) => {
    if (ended.code !== 0) setTimeout(() => failed.abort(), GRACE).unref();
  };
  let evidence = '';
  const late = setTimeout(
    async () => {
      evidence = `shortly before its end by force:\n${await whatTheyDo(guest).catch(String)}\n`;
    },
    LATE * within.timeout * PATIENCE,
  );
  onTestFinished(() => clearTimeout(late));
  if (role === 'server') {
    const node = roce(args);
    await node.listens;
    void node.done.then(settled);
    theirs = await guest.exec(`${command} ${host}`, within);
    mine = await node.done;
  } else {
    const server = guest.exec(command, within);
    const listening = rdmaCm
      ? `rdma res show cm_id | grep -q 'LISTEN.*:${port}'`
      : `ss -ltn | grep -q :${port}`;
    await guest.must(`for i in $(seq 80); do ${listening} && exit 0; sleep 0.1; done; exit 1`);
    mine = await roce([...args, peer]).done;
    settled(mine);
    theirs = await server;
  }
  const context = `roce perf ${args.join(' ')}\n${mine.stderr}${mine.stdout}\n${command}\n${theirs.stdout}${theirs.stderr}\n${evidence}`;
  clearTimeout(late);
  expect({ ours: mine.code, theirs: theirs.code }, context).toEqual({ ours: 0, theirs: 0 });
  const report = JSON.parse(mine.stdout) as PerfReport;
  const rows = rowsOf(theirs.stdout);
  return { report, rows, clockless: isClockless(theirs.stderr, rows.at(-1)) };
}
