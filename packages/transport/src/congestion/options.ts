/** Congestion control of a device or a queue pair: what may be asked for, its defaults, and the checks. */
import { invalid } from '../errors.ts';

/** How a queue pair's congestion is controlled. */
export type ControllerName = 'aimd' | 'dcqcn';
export const CONTROLLERS: readonly ControllerName[] = ['aimd', 'dcqcn'];

/**
 * Congestion control. `aimd` is a window that losses make smaller. `dcqcn` adds the rate of DCQCN (Zhu et al., SIGCOMM 2015), as that paper has it:
 * data carries ECT(0), and congestion notification packets (CNPs) make the sender slower. A parameter that means the same in mlx5 has mlx5's
 * name (docs/congestion.md compares them).
 */
export interface Congestion {
  /** RC: what its requests and READ responses obey. Default `aimd`. */
  controller: ControllerName;
  /** RC and UC: answers packets that come marked "congestion experienced" with CNPs. Default: where `controller` is `dcqcn`. */
  notify: boolean;
  /** Least time between two CNPs of a queue pair (N), µs. Default 50. */
  minTimeBetweenCnps: number;
  /** DSCP of CNPs, 0 … 63. Default 48. */
  cnpDscp: number;
  /** Weight of one CNP in the average α: g, more than 0, at most 1. Default 1/256. */
  g: number;
  /** α at the first CNP, 0 … 1. Default 1. */
  initialAlpha: number;
  /** Without a CNP for so long (K), α becomes smaller, µs. Default 55. */
  alphaPeriod: number;
  /** Least time between two cuts: a CNP that comes sooner changes nothing, µs. Default 4. */
  rateReduceMonitorPeriod: number;
  /** The rate grows after so long (T), µs. Default 55. */
  rpgTimeReset: number;
  /** The rate grows after so many bytes (B). Default 10,000,000. */
  rpgByteReset: number;
  /** Steps of growth, counted from 1, before which the target rate stays: F. Default 5. */
  rpgThreshold: number;
  /** Additive increase of the target rate (R_AI), Mb/s. Default 40. */
  rpgAiRate: number;
  /** Hyper increase of the target rate (R_HAI), Mb/s. Default 100. */
  rpgHaiRate: number;
  /** No cut goes below, Mb/s. Default 1. */
  rpgMinRate: number;
  /** Line rate: where a queue pair starts, and from where on it is not held back, Mb/s. Default 10,000. */
  rpgMaxRate: number;
}

export const CONGESTION_DEFAULTS: Congestion = {
  controller: 'aimd',
  notify: false,
  minTimeBetweenCnps: 50,
  cnpDscp: 48,
  g: 1 / 256,
  initialAlpha: 1,
  alphaPeriod: 55,
  rateReduceMonitorPeriod: 4,
  rpgTimeReset: 55,
  rpgByteReset: 10_000_000,
  rpgThreshold: 5,
  rpgAiRate: 40,
  rpgHaiRate: 100,
  rpgMinRate: 1,
  rpgMaxRate: 10_000,
};

type Range = readonly [low: number, high: number, unit: string];
/** A second: more would be no control. */
const LONGEST = 1_000_000;
/** 1 Tb/s. */
const FASTEST = 1_000_000;

const WHOLE: Readonly<Record<string, Range>> = {
  cnpDscp: [0, 63, ''],
  rpgByteReset: [10_000, 0xffff_ffff, ' bytes'],
  rpgThreshold: [1, 31, ''],
};
const NUMBERS: Readonly<Record<string, Range>> = {
  ...WHOLE,
  minTimeBetweenCnps: [0, LONGEST, ' µs'],
  g: [2 ** -20, 1, ''],
  initialAlpha: [0, 1, ''],
  alphaPeriod: [1, LONGEST, ' µs'],
  rateReduceMonitorPeriod: [0, LONGEST, ' µs'],
  rpgTimeReset: [1, LONGEST, ' µs'],
  rpgAiRate: [1, FASTEST, ' Mb/s'],
  rpgHaiRate: [1, FASTEST, ' Mb/s'],
  rpgMinRate: [1, FASTEST, ' Mb/s'],
  rpgMaxRate: [1, FASTEST, ' Mb/s'],
};

/** @throws RoceError (EINVAL) with the field at fault, after the name of the whole */
export function checkCongestion(congestion: Partial<Congestion> = {}, name: string): Partial<Congestion> {
  const given = Object.entries(congestion).filter(([, value]) => value !== undefined);
  for (const [key, value] of given) {
    const expected = expectation(key, value);
    if (expected !== undefined) throw invalid(`${name}.${key}`, String(value), expected);
  }
  return Object.fromEntries(given);
}

/** Returns the expected values, where this one can't be taken. */
function expectation(key: string, value: unknown): string | undefined {
  if (key === 'controller') {
    return CONTROLLERS.includes(value as ControllerName) ? undefined : CONTROLLERS.join(', ');
  }
  if (key === 'notify') return typeof value === 'boolean' ? undefined : 'true or false';
  if (!Object.hasOwn(NUMBERS, key)) return `one of ${Object.keys(CONGESTION_DEFAULTS).join(', ')}`;
  const [low, high, unit] = NUMBERS[key];
  const fits = typeof value === 'number' && value >= low && value <= high;
  if (fits && (Number.isInteger(value) || !Object.hasOwn(WHOLE, key))) return undefined;
  return `${low} … ${high}${unit}`;
}

/**
 * The congestion control of a queue pair: what it was created with, then the device's, then the defaults. All parts are checked.
 *
 * @throws RoceError (EINVAL) where they contradict each other
 */
export function resolveCongestion(
  device: Partial<Congestion>,
  own: Partial<Congestion>,
  name: string,
): Congestion {
  const resolved = { ...CONGESTION_DEFAULTS, ...device, ...own };
  const { controller, rpgMinRate, rpgMaxRate } = resolved;
  if (rpgMinRate > rpgMaxRate) {
    throw invalid(`${name}.rpgMinRate`, `${rpgMinRate}`, `at most rpgMaxRate, ${rpgMaxRate} Mb/s`);
  }
  return { ...resolved, notify: own.notify ?? device.notify ?? controller === 'dcqcn' };
}
