// Records captures of the real rxe at both ends of a link with faults, each with its truth (test/evidence/captures-judged.md).
//
//   node test/capture/real/record.mjs [--pair k61|k612] [--minutes N] [--again] [REGEX]
//
//   --pair      Kernels of the guests (k61: Linux 6.1 at both ends, k612: 6.12)
//   --minutes   Start no run after this many minutes (30)
//   --again     Record runs anew that are there already
//   REGEX       Only runs whose name matches
//
// Two guests under QEMU; their network cards are connected by link.c, which is the network: it takes the captures of both ends, and it
// does what befalls the frames. Kernel probes in each guest record when rxe sent, got an answer, and when its timers fired. Needs what
// `npm run test:interop` needs.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath, URL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { buildGuest, installPackages } from '../../interop/image.mjs';
import { call } from '../../interop/packages.mjs';
import { PATIENCE } from '../../tiers/patience.mjs';
import { Guest } from './guest.mjs';
import { readCapture } from './pcap.mjs';
import { isUnseen, PAIRS, RUNS, seedOf } from './runs.mjs';
import { deriveTruth, isTimely, truthJson, truthText } from './truth.mjs';

const PATH_MTU = 1024; // of rxe on a network with an MTU of 1500
/** A run whose capture is not timely is recorded so often. */
const ATTEMPTS = 3;
const TRACING = '/sys/kernel/tracing';
const here = fileURLToPath(new URL('.', import.meta.url));
const output = join(here, 'captures');

/** Probes: rxe_xmit_packet(qp, pkt, skb), rxe_comp_queue_pkt(qp, skb) with its rxe_pkt_info in skb->cb, and both timers. */
const PROBES = `
mount -t tracefs tracefs ${TRACING} && cd ${TRACING} || exit 1
echo mono > trace_clock
echo 8192 > buffer_size_kb
echo 'p:rt rdma_rxe:retransmit_timer t=%di:x64' >> kprobe_events
echo 'p:rnr rdma_rxe:rnr_nak_timer t=%di:x64' >> kprobe_events
echo 'p:tx rdma_rxe:rxe_xmit_packet qp=%di:x64 psn=+36(%si):u32 op=+45(%si):u8 dqp=+4(+24(%si)):x32' >> kprobe_events
echo 'p:rxc rdma_rxe:rxe_comp_queue_pkt qp=%di:x64 psn=+76(%si):u32 op=+85(%si):u8' >> kprobe_events
echo 1 > events/kprobes/enable
uname -r`;

function options() {
  const found = { pairs: Object.keys(PAIRS), minutes: 30, again: false, filter: /./ };
  const args = process.argv.slice(2);
  for (let argument = args.shift(); argument !== undefined; argument = args.shift()) {
    if (argument === '--pair') found.pairs = [args.shift()];
    else if (argument === '--minutes') found.minutes = Number(args.shift());
    else if (argument === '--again') found.again = true;
    else found.filter = new RegExp(argument);
  }
  for (const pair of found.pairs) {
    if (!PAIRS[pair]) throw new Error(`--pair: expected ${Object.keys(PAIRS).join(' or ')}, not "${pair}"`);
  }
  return found;
}

/** The program link.c, with its commands as calls. */
class Link {
  constructor(directory) {
    const program = join(directory, 'link');
    call('gcc', ['-O2', '-Wall', '-Wextra', '-Werror', '-o', program, join(here, 'link.c')]);
    const sockets = ['link-a', 'guest-a', 'link-b', 'guest-b'].map((name) => join(directory, name));
    this.process = spawn(program, sockets, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.lines = createInterface({ input: this.process.stdout })[Symbol.asyncIterator]();
  }

  async command(line) {
    this.process.stdin.write(`${line}\n`);
    const { value } = await this.lines.next();
    if (!value?.startsWith('ok')) throw new Error(`link: ${line}: ${value}`);
    return value;
  }

  stop() {
    this.process.kill();
  }
}

async function counters(guest) {
  const text = await guest.must('cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *');
  const pairs = text
    .trim()
    .split('\n')
    .map((line) => line.split(':'));
  return Object.fromEntries(pairs.map(([name, value]) => [name, Number(value)]));
}

const changes = (before, after) =>
  Object.fromEntries(
    Object.entries(after)
      .map(([name, value]) => [name, value - before[name]])
      .filter(([, change]) => change !== 0),
  );

async function record(name, run, { guests: { a, b }, link, directory, kernels }) {
  const before = { a: await counters(a), b: await counters(b) };
  for (const guest of [a, b]) await guest.must(`echo > ${TRACING}/trace`);
  const prefix = join(directory, 'run');
  await link.command(`begin ${prefix} ${seedOf(name)}`);
  for (const fault of run.faults ?? []) {
    const [direction, ...rest] = fault.split(' ');
    await link.command(`fault ${direction} ${rest.join(' ')}`);
  }
  for (const command of run.link ?? []) await link.command(command);
  const limit = (run.seconds ?? 15) * 1000 * PATIENCE;
  const server = b.spawn(run.server, limit + 10_000);
  const listening = await b.exec(
    `i=0; until ${run.ready}; do i=$((i+1)); [ $i = 60 ] && exit 1; sleep 0.1; done`,
    20_000 * PATIENCE,
  );
  if (listening.code !== 0) throw new Error(`${name}: the server does not listen\n${server.output}`);
  const client = a.spawn(run.client, limit);
  if (run.kill) setTimeout(() => server.stop(), run.kill);
  const ended = await client.done;
  await Promise.race([server.done, sleep((run.seconds ? 300 : 2500) * PATIENCE)]);
  server.stop();
  await sleep(300);
  await link.command('end');
  const traces = { a: await a.must(`cat ${TRACING}/trace`), b: await b.must(`cat ${TRACING}/trace`) };
  const after = { a: await counters(a), b: await counters(b) };
  const log = readFileSync(`${prefix}.log`, 'utf8');
  const taps = { a: readCapture(`${prefix}-a.pcap`), b: readCapture(`${prefix}-b.pcap`) };
  const truth = deriveTruth({ log: parseLog(log), taps, traces, pathMtu: PATH_MTU });
  const facts = {
    name,
    unseen: isUnseen(name),
    kernels,
    server: run.server,
    client: run.client,
    faults: [...(run.faults ?? []), ...(run.link ?? [])],
    seed: seedOf(name),
    exit: ended.code,
    counters: { a: changes(before.a, after.a), b: changes(before.b, after.b) },
  };
  const json = truthJson(truth, facts);
  if (!isTimely(json)) throw new Error(`${name}: the machine was too busy: ${JSON.stringify(json.lag)}`);
  for (const tap of ['a', 'b'])
    writeFileSync(
      join(output, `${name}-${tap}.pcap.gz`),
      gzipSync(readFileSync(`${prefix}-${tap}.pcap`), { level: 9 }),
    );
  writeFileSync(
    join(output, `${name}.witness.gz`),
    gzipSync(JSON.stringify({ facts, log, traces }), { level: 9 }),
  );
  writeFileSync(join(output, `${name}.json`), truthText(json));
  const causes = {};
  for (const { cause } of truth.events) causes[cause] = (causes[cause] ?? 0) + 1;
  console.log(
    `${name}: ${json.frames.a} and ${json.frames.b} frames, client ended with ${ended.code}, events ${JSON.stringify(causes)}, ` +
      `unmatched ${JSON.stringify(truth.unmatched)}`,
  );
  if (process.env.CAPTURE_REAL_VERBOSE) console.log(ended.output);
}

const parseLog = (text) =>
  text
    .trim()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));

async function recordPair(pair, { again, filter }, deadline) {
  const names = Object.keys(RUNS)
    .map((base) => `${pair}-${base}`)
    .filter((name) => filter.test(name) && (again || !existsSync(join(output, `${name}.json`))));
  if (names.length === 0) return;
  const directory = mkdtempSync(join(tmpdir(), 'capture-real-'));
  const link = new Link(directory);
  const { a, b, mtu } = PAIRS[pair];
  const started = await Promise.allSettled([
    Guest.start({ side: 'a', release: a, image: buildGuest(a), directory, mtu, prepare: PROBES }),
    Guest.start({ side: 'b', release: b, image: buildGuest(b), directory, mtu, prepare: PROBES }),
  ]);
  const booted = started.map(({ value }) => value);
  for (const { reason } of started) if (reason) throw reason;
  try {
    const guests = { a: booted[0], b: booted[1] };
    const kernels = {};
    for (const guest of booted) {
      kernels[guest.side] = (await guest.must('uname -r')).trim();
    }
    await guests.a.must(`ping -c 2 ${guests.b.ip4} && ping -c 1 ${guests.b.ip6}`);
    for (const name of names) {
      if (Date.now() > deadline) break;
      let trouble;
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        trouble = await record(name, RUNS[name.slice(pair.length + 1)], {
          guests,
          link,
          directory,
          kernels,
        }).catch((error) => error);
        if (trouble === undefined) break;
        console.error(trouble.message);
        await link.command('end').catch(() => {});
      }
      if (trouble !== undefined) process.exitCode = 1;
    }
  } finally {
    for (const guest of booted) guest.stop();
    link.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

const wanted = options();
installPackages();
mkdirSync(output, { recursive: true });
const deadline = Date.now() + wanted.minutes * 60_000;
for (const pair of wanted.pairs) await recordPair(pair, wanted, deadline);
process.exit();
