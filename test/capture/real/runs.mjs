// The runs of the recorder: programs at both ends, and what the link does to their frames (commands of link.c).
import { createHash } from 'node:crypto';

const SERVER = '10.78.0.2';

const tcp = (port) => `ss -ltn | grep -q :${port}`;
const listens = 'rdma res show cm_id | grep -q LISTEN';

/** `ibv_rc_pingpong` and `ibv_uc_pingpong`: SENDs both ways. */
const pingpong = (options, { gid = 1, kind = 'rc' } = {}) => ({
  server: `ibv_${kind}_pingpong -d rxe0 -g ${gid} -m 1024 -e ${options}`,
  client: `ibv_${kind}_pingpong -d rxe0 -g ${gid} -m 1024 -e ${options} ${SERVER}`,
  ready: tcp(18515),
});

/** A program of perftest; the client's requests go from a to b. It sleeps for completions (-e) where it can: WRITE polls. */
const perf = (program, options) => {
  const common = `${program} -d rxe0 -x 1 -m 1024 -F ${program.includes('write') ? '' : '-e '}${options}`;
  return { server: common, client: `${common} ${SERVER}`, ready: tcp(18515) };
};

const rping = (options) => ({
  server: `rping -s -a ${SERVER} ${options}`,
  client: `rping -c -a ${SERVER} ${options}`,
  ready: listens,
});

const write = (options = '-s 8192 -n 25 -t 4') => perf('ib_write_bw', options);
const read = (options = '-s 8192 -n 25 -o 4 -t 4') => perf('ib_read_bw', options);
const both = (...faults) => faults.flatMap((fault) => [`ab ${fault}`, `ba ${fault}`]);

/**
 * name: { server, client, ready (a command that succeeds once the server listens), faults, link (other commands of link.c), seconds (limit),
 * kill (the server is killed ms after the client started) }.
 */
export const RUNS = {
  'clean-send': pingpong('-s 4096 -n 15'),
  'clean-read': read('-s 8192 -n 10 -o 4 -t 4'),
  'loss5-pingpong': { ...pingpong('-s 4096 -n 50'), faults: both('loss rc 5') },
  'loss5-pingpong-ipv6': { ...pingpong('-s 4096 -n 40', { gid: 2 }), faults: both('loss rc 5') },
  'loss10-write': { ...write(), faults: ['ab loss request 10'] },
  'loss3-write-4qp': { ...write('-s 4096 -n 20 -q 4 -t 8'), faults: both('loss rc 3') },
  'loss5-write-both-ways': { ...write('-s 4096 -n 25 -b -t 4'), faults: both('loss rc 5') },
  'loss5-send-timeout12': { ...perf('ib_send_bw', '-s 4096 -n 40 -t 4 -u 12'), faults: both('loss rc 5') },
  'loss10-read-responses': { ...read(), faults: ['ba loss response 10'] },
  'loss20-read-requests': { ...read(), faults: ['ab loss read 20'] },
  'loss5-read-both': { ...read(), faults: both('loss rc 5') },
  'loss30-acks': { ...write('-s 4096 -n 30 -t 2'), faults: ['ba loss ack 30'] },
  'loss5-naks60': { ...write(), faults: ['ab loss request 5', 'ba loss nak 60'] },
  'loss8-atomic': { ...perf('ib_atomic_bw', '-A FETCH_AND_ADD -n 60 -o 4 -t 4'), faults: both('loss rc 8') },
  'loss5-rping': { ...rping('-C 12 -S 6000'), faults: both('loss rc 5') },
  'burst-write': { ...write(), faults: ['ab burst request 2 6'] },
  'burst-read': { ...read(), faults: ['ba burst response 2 6'] },
  'burst-pingpong': { ...pingpong('-s 6000 -n 40'), faults: both('burst rc 1.5 8') },
  'corrupt5-pingpong': { ...pingpong('-s 4096 -n 40'), faults: both('corrupt rc 5') },
  'corrupt6-write': { ...write(), faults: ['ab corrupt data 6'] },
  'corrupt6-read': { ...read(), faults: ['ba corrupt response 6'] },
  'reorder-write': { ...write(), faults: ['ab hold request 6 2000'] },
  'reorder-read': { ...read(), faults: ['ba hold response 6 2000'] },
  'reorder-20ms': { ...pingpong('-s 6000 -n 30'), faults: both('hold rc 4 20000') },
  'delay-3ms': { ...pingpong('-s 4096 -n 30'), faults: both('delay any 3000 1000 1') },
  'delay-3ms-loss5': { ...pingpong('-s 4096 -n 60'), faults: both('delay any 3000 1000 1', 'loss rc 5') },
  'delay-3ms-loss5-write': {
    ...write('-s 8192 -n 30 -t 4'),
    faults: both('delay any 3000 1000 1', 'loss rc 5'),
  },
  'jitter-3ms-loss5': { ...pingpong('-s 4096 -n 40'), faults: both('delay any 3000 1000 0', 'loss rc 5') },
  'jitter-2ms-loss3': { ...pingpong('-s 4096 -n 40'), faults: both('delay any 2000 1000 0', 'loss rc 3') },
  'jitter-3ms-loss5-write': { ...write(), faults: both('delay any 3000 1000 0', 'loss rc 5') },
  'duplicate-near': { ...pingpong('-s 4096 -n 30'), faults: both('duplicate rc 8 60') },
  'duplicate-late': { ...write(), faults: both('duplicate rc 6 5000') },
  'rnr-send': perf('ib_send_bw', '-s 2000 -n 30 -r 2 -t 12'),
  'rnr-send-loss5': { ...perf('ib_send_bw', '-s 2000 -n 30 -r 2 -t 12'), faults: both('loss rc 5') },
  'vanish-write': {
    ...write('-s 4096 -n 60 -t 4 --retry_count=3'),
    faults: ['ab cut request 90'],
    seconds: 6,
  },
  'vanish-read': {
    ...read('-s 4096 -n 60 -o 2 -t 4 --retry_count=2'),
    faults: ['ba cut response 70'],
    seconds: 6,
  },
  'vanish-forever': { ...pingpong('-s 4096 -n 60'), faults: ['ab cut request 60'], seconds: 4 },
  'killed-peer': { ...pingpong('-s 2048 -n 4000'), kill: 900, seconds: 3 },
  'cm-refused': { ...rping('-C 3'), server: 'sleep 3', ready: 'true', seconds: 5 },
  'cm-loss30-rping': { ...rping('-C 3 -S 400'), faults: both('loss cm 30'), seconds: 25 },
  'cm-loss20-ucmatose': {
    server: 'ucmatose -C 4 -S 300',
    client: `ucmatose -C 4 -S 300 -s ${SERVER}`,
    ready: listens,
    faults: both('loss cm 20'),
    seconds: 25,
  },
  'cm-request-lost': { ...rping('-C 2 -S 400'), faults: ['ab drop cm 1 2'], seconds: 20 },
  'cnp-write': { ...write(), faults: ['ab mark data 15'], link: ['cnp ab 50'] },
  'cnp-loss': { ...write(), faults: ['ab mark data 15', 'ab loss request 4'], link: ['cnp ab 50'] },
  'pfc-write': { ...write(), link: ['pause a 60 3 8000'] },
  'pfc-long': { ...write('-s 8192 -n 20 -t 4'), link: ['pause a 60 3 150000'] },
  'one-loss-first': { ...write('-s 4096 -n 8 -t 1'), faults: ['ab drop request 1 1'] },
  'one-loss-middle': { ...write('-s 8192 -n 6 -t 1'), faults: ['ab drop request 12 1'] },
  'one-loss-tail': { ...write('-s 4096 -n 8 -t 1'), faults: ['ab drop request 16 1'] },
  'one-ack-lost': { ...write('-s 4096 -n 8 -t 1'), faults: ['ba drop ack 3 1'] },
  'one-response-lost': { ...read('-s 8192 -n 6 -o 1 -t 1'), faults: ['ba drop response 11 1'] },
  'one-damaged': { ...write('-s 8192 -n 6 -t 1'), faults: ['ab damage request 12 1'] },
  'mixed3-pingpong': {
    ...pingpong('-s 4096 -n 60'),
    faults: both('loss rc 3', 'corrupt rc 2', 'hold rc 2 1500', 'duplicate rc 2 80'),
  },
  'mixed3-read': {
    ...read(),
    faults: both('loss rc 3', 'corrupt rc 2', 'hold rc 2 1500', 'duplicate rc 2 80'),
  },
  'uc-loss5': {
    ...perf('ib_write_bw', '-c UC -s 4096 -n 30 -t 4'),
    faults: ['ab loss request 5'],
    seconds: 6,
  },
  'ud-send': { ...perf('ib_send_bw', '-c UD -s 1000 -n 30 -t 4'), seconds: 6 },
};

/** Kernels at both ends: `a` and `b`. */
export const PAIRS = {
  k61: { a: 'debian12', b: 'debian12', mtu: 1500 },
  k612: { a: 'debian13', b: 'debian13', mtu: 1500 },
};

const hash = (name) => createHash('sha256').update(name).digest();

/** A third of the captures is not looked at while heuristics are tuned; the hash of the name chooses. */
export const isUnseen = (name) => hash(name).readUInt32BE(0) % 3 === 0;

/** The seed of a run's faults. */
export const seedOf = (name) => hash(name).readUInt32BE(4);
