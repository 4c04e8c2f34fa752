/** The matrix of perftest: programs, services and ways to connect; and the options, each with the programs that it concerns. */
import type { PerfCase } from './perftest.ts';

type Program = Pick<PerfCase, 'verb' | 'measure'>;
const VERBS = ['send', 'write', 'read', 'atomic'] as const;
const PROGRAMS: readonly Program[] = VERBS.flatMap((verb) =>
  (['bw', 'lat'] as const).map((measure) => ({ verb, measure })),
);
const SERVICES = {
  send: ['RC', 'UC', 'UD'],
  write: ['RC', 'UC'],
  read: ['RC'],
  atomic: ['RC'],
} as const;
/** Datagrams and UC are lost for good where a buffer is full: few at a time, and no larger than a packet or a few. */
const GENTLE = '-s 1024 -t 8';

/** A case, its subject (the property of a sample), and its name. */
export type TopicCase = PerfCase & { topic: string; title: string };
/** A case before the roles. */
type Half = Omit<TopicCase, 'role' | 'version' | 'title'> & { version?: 4 | 6 };

const kindsOf = ({ verb }: Program) => (verb === 'atomic' ? ['-A FETCH_AND_ADD', '-A CMP_AND_SWAP'] : ['']);
/** Without ACKs a run is over as soon as it is sent: of a short one our first message, in code that never ran, would be an eighth of the time. */
const countOf = ({ verb, measure }: Program, service: string) =>
  service === 'UC' && verb === 'write' && measure === 'bw' ? '-n 5000' : '-n 500';
const sizeOf = ({ verb, measure }: Program, service: string) =>
  measure === 'lat' || verb === 'atomic' ? '' : service === 'RC' ? '-s 8192' : GENTLE;

/** Every program with every service, queue pairs, and way to connect. */
const products: Half[] = PROGRAMS.flatMap((program) =>
  SERVICES[program.verb].flatMap((service) =>
    [false, true]
      .filter((rdmaCm) => !(rdmaCm && service === 'UC'))
      .flatMap((rdmaCm) =>
        kindsOf(program).flatMap((kind) =>
          (program.measure === 'bw' ? ['-q 1', '-q 4'] : ['']).map((qps) => ({
            ...program,
            topic: qps || 'latency',
            service,
            rdmaCm,
            options: [countOf(program, service), qps, kind, sizeOf(program, service)]
              .filter(Boolean)
              .join(' '),
          })),
        ),
      ),
  ),
);

const bandwidths = PROGRAMS.filter(({ measure }) => measure === 'bw');
const messages = PROGRAMS.filter(({ verb }) => verb !== 'atomic');
const only = (...names: string[]) =>
  PROGRAMS.filter(({ verb, measure }) => names.includes(`${verb} ${measure}`));
const each = (
  topic: string,
  programs: readonly Program[],
  options: string,
  more: Partial<Half> = {},
): Half[] => programs.map((program) => ({ topic, ...program, service: 'RC', ...more, options }));
const sized = (halves: readonly Half[]): Half[] =>
  halves.map((half) => ({ ...half, options: `${half.options} ${sizeOf(half, 'RC')}`.trim() }));

const isPowerOfTwo = (n: number) => (n & (n - 1)) === 0;

/** READs and atomics outstanding at once: rxe rounds its own depth up to a power of two. */
const depths: Half[] = Array.from({ length: 17 }, (_, i) => i + 1).flatMap((depth) =>
  only('read bw', 'atomic bw').flatMap((program) =>
    kindsOf(program).map((kind) => ({
      ...program,
      topic: isPowerOfTwo(depth) ? 'a depth that is a power of two' : 'a depth in between',
      service: 'RC' as const,
      options: ['-n 500', `-o ${depth}`, kind, sizeOf(program, 'RC')].filter(Boolean).join(' '),
    })),
  ),
);

/** Options by themselves. */
const options: Half[] = [
  ...each('all sizes', messages, '-a -n 20'),
  ...each('all sizes', only('send bw', 'send lat'), '-a -n 20 -t 1', { service: 'UD' }),
  ...sized(each('both directions', bandwidths, '-b -n 500')),
  ...each('inline', only('send bw', 'send lat', 'write bw', 'write lat'), '-I 64 -s 64 -n 2000'),
  ...each(
    'events',
    // "Events feature not available on WRITE verb".
    PROGRAMS.filter(({ verb }) => verb !== 'write'),
    '-e -n 1000',
  ),
  ...sized(each('duration', PROGRAMS, '-D 5')),
  // Rates are compared by the time of all messages: of 200 tiny ones, or with events, the first ones are too large a part.
  ...[1, 3, 65_537].flatMap((size) =>
    each(`size ${size}`, messages, `-s ${size} -n ${size < 1024 ? 2000 : 200}`),
  ),
  ...each('IPv6 GIDs', PROGRAMS, '-n 200', { version: 6 }),
  ...each('Gb/s', bandwidths, '-n 200 --report_gbits'),
  ...each('warm-up', only('write bw', 'read bw'), '-n 200 --perform_warm_up'),
  ...each('MTU', only('write bw', 'send lat'), '-n 200 -m 1024'),
  ...each('worker', only('write lat', 'send bw'), '-n 200', { ours: '--engine worker' }),
];

/** Those of perftest 25.01 alone: dialogues over IPv6, and WRITE with immediate. */
const newer: Half[] = [
  ...each('IPv6 dialogue', PROGRAMS, '-n 200', { version: 6, dialogue: 6 }),
  ...each('IPv6 -R', only('write bw', 'read lat'), '-n 200', { version: 6, dialogue: 6, rdmaCm: true }),
  ...each('immediate', only('write bw', 'write lat'), '-n 200 --write_with_imm'),
];

/** All cases, in both roles. */
export function perfCases(release: string): TopicCase[] {
  const halves = [...products, ...options, ...depths, ...(release === 'debian13' ? newer : [])];
  return halves.flatMap((half) =>
    (['server', 'client'] as const).map((role) => {
      const one = { version: 4 as const, ...half, role };
      return { ...one, title: titleOf(one) };
    }),
  );
}

function titleOf({
  verb,
  measure,
  service,
  rdmaCm,
  options,
  ours = '',
  version,
  dialogue = 4,
  role,
}: PerfCase) {
  const words = [`ib_${verb}_${measure} -c ${service}`, rdmaCm ? '-R' : '', options, ours].filter(Boolean);
  return `${words.join(' ')}, GIDs of IPv${version}, dialogue over IPv${dialogue}: we are the ${role}`;
}
