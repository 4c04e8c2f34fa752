/** The result as text: perftest's table, and below it the figures that perftest does not print. */
import type { BandwidthFigures } from '../dialogue/fields.ts';
import { fetches, type Plan, type Verb } from '../plan.ts';
import type { Bucket, LatencyFigures } from './latency.ts';
import type { PerfResult } from './result.ts';

const LINE = '-'.repeat(87);
const TITLES: Record<Verb, string> = {
  send: 'Send',
  write: 'RDMA_Write',
  read: 'RDMA_Read',
  atomic: 'Atomic',
};

/** The name of the test as perftest's heading has it. */
export function titleOf({ verb, measure, bidirectional, atomic }: Plan): string {
  const kind = verb === 'atomic' ? `${TITLES.atomic} ${atomic}` : TITLES[verb];
  if (measure === 'lat') return `${kind} Latency Test`;
  return `${kind} ${bidirectional ? 'Bidirectional ' : ''}BW Test`;
}

const columns = (cells: readonly string[], widths: readonly number[]) =>
  ` ${cells.map((cell, i) => cell.padEnd(widths[i])).join(' ')}`.trimEnd();

const BANDWIDTH_WIDTHS = [10, 14, 18, 21, 14];
const LATENCY_WIDTHS = [7, 14, 14, 14, 16, 14, 14, 22, 24];

function bandwidthHead(gigabits: boolean): string {
  const unit = gigabits ? 'Gb/sec' : 'MiB/sec';
  const names = ['#bytes', '#iterations', `BW peak[${unit}]`, `BW average[${unit}]`, 'MsgRate[Mpps]'];
  return columns(names, BANDWIDTH_WIDTHS);
}

function bandwidthRow({ size, iterations, peak, average, messageRate }: BandwidthFigures, gigabits: boolean) {
  // As perftest: small figures in Gb/s get more digits.
  const digits = gigabits && average < 0.1 ? 6 : 2;
  const figures = [peak.toFixed(digits), average.toFixed(digits), messageRate.toFixed(6)];
  return columns([`${size}`, `${iterations}`, ...figures], BANDWIDTH_WIDTHS);
}

const LATENCY_HEAD = columns(
  [
    '#bytes',
    '#iterations',
    't_min[usec]',
    't_max[usec]',
    't_typical[usec]',
    't_avg[usec]',
    't_stdev[usec]',
  ].concat('99% percentile[usec]', '99.9% percentile[usec]'),
  LATENCY_WIDTHS,
);
const DURATION_HEAD = columns(['#bytes', '#iterations', 't_avg[usec]', 'tps average'], LATENCY_WIDTHS);

function latencyRow({ size, iterations, average, rate, ...rest }: LatencyFigures): string {
  const head = [`${size}`, `${iterations}`];
  if (rate !== undefined) return columns([...head, average.toFixed(2), rate.toFixed(2)], LATENCY_WIDTHS);
  const { min = 0, max = 0, typical = 0, deviation = 0, percentiles } = rest;
  const figures = [
    min,
    max,
    typical,
    average,
    deviation,
    percentiles?.['99'] ?? 0,
    percentiles?.['99.9'] ?? 0,
  ];
  return columns([...head, ...figures.map((figure) => figure.toFixed(2))], LATENCY_WIDTHS);
}

/** The lines before the figures: the test and its conditions. */
function heading({
  plan,
  mtu,
  rdmaCm,
  role,
  peerVersion,
  localAddress,
  remoteAddress,
}: PerfResult): string[] {
  const facts: [string, string][] = [
    ['Number of qps', `${plan.qps}`],
    ['Connection type', plan.service],
    ['TX depth', `${plan.txDepth}`],
    ...(plan.consumesReceives ? [['RX depth', `${plan.rxDepth}`] as [string, string]] : []),
    ...(plan.measure === 'bw' ? [['CQ Moderation', `${plan.cqMod}`] as [string, string]] : []),
    ['Mtu', `${mtu}[B]`],
    fetches(plan) ? ['Outstand reads', `${plan.outReads}`] : ['Max inline data', `${plan.inline}[B]`],
    ['rdma_cm QPs', rdmaCm ? 'ON' : 'OFF'],
    ['Role', `${role}, peer of dialogue version ${peerVersion}`],
    ['Local address', localAddress],
    ['Remote address', remoteAddress],
  ];
  const title = titleOf(plan);
  return [
    LINE,
    title.padStart((LINE.length + title.length) >> 1),
    ...facts.map(([name, value]) => ` ${name.padEnd(16)}: ${value}`),
    LINE,
  ];
}

/** @param both print each side's figures below the sum of both */
export function table(result: PerfResult, both = false): string[] {
  const lines = heading(result);
  const { gigabits } = result;
  if (result.measure === 'bw') {
    lines.push(bandwidthHead(gigabits), ...result.runs.map((run) => bandwidthRow(run, gigabits)), LINE);
    if (both && result.local && result.remote) {
      const sides = [
        ['Local results:', result.local],
        ['Remote results:', result.remote],
      ] as const;
      for (const [name, figures] of sides)
        lines.push(` ${name}`, bandwidthHead(gigabits), bandwidthRow(figures, gigabits), LINE);
    }
  } else if (result.runs.length > 0) {
    lines.push(result.plan.duration === undefined ? LATENCY_HEAD : DURATION_HEAD);
    for (const run of result.runs) lines.push(latencyRow(run));
    lines.push(LINE);
    for (const { size, percentiles } of result.runs)
      if (percentiles) lines.push(` ${size} bytes: ${percentileText(percentiles)}`);
    for (const { size, histogram } of result.runs)
      if (histogram) lines.push(...histogramLines(size, histogram));
  }
  lines.push(` ${measuredText(result)}`);
  return lines;
}

function percentileText(percentiles: NonNullable<LatencyFigures['percentiles']>): string {
  const figures = Object.entries(percentiles).map(([percent, value]) => `${percent}% ${value.toFixed(2)}`);
  return `${figures.join(', ')} usec`;
}

const BAR = 40;

function histogramLines(size: number, buckets: readonly Bucket[]): string[] {
  const most = Math.max(...buckets.map(({ count }) => count));
  return [
    ` ${size} bytes, messages by latency[usec]:`,
    ...buckets.map(({ from, count }) => {
      const bar = '#'.repeat(Math.ceil((count / most) * BAR));
      return ` ${`${from} - ${2 * from}`.padStart(18)} ${`${count}`.padStart(9)} ${bar}`.trimEnd();
    }),
  ];
}

/** One sentence: which side took the times, of what. */
export function measuredText({ measure, measuredBy, plan, role }: PerfResult): string {
  if (measuredBy === 'the peer')
    return measure === 'bw'
      ? 'Measured by the peer: these are the figures of its report.'
      : 'Measured by the peer, which keeps its figures: this side only served.';
  if (measure === 'lat') {
    return fetches(plan)
      ? 'Measured by this side: from posting a request to its completion.'
      : 'Measured by both sides, each for itself: half of the time from one message to the next.';
  }
  if (measuredBy === 'both sides') {
    return plan.consumesReceives && plan.duration !== undefined
      ? 'Measured by both sides, each for itself: messages sent and received.'
      : 'Measured by both sides: the sum of both reports.';
  }
  if (plan.duration !== undefined)
    return `Measured by this side: messages ${role === 'client' ? 'completed' : 'received'} between the margins of the duration.`;
  return role === 'client'
    ? 'Measured by this side: from posting the first message to the completion of the last.'
    : 'Measured by this side: from the arrival of the first message to that of the last.';
}
