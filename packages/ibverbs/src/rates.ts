/** Rates of links: `enum ibv_rate` and what it stands for. */
import * as c from './constants.ts';

/** Of each rate: Mbit/s, and the multiple of 2.5 Gbit/s where libibverbs knows one. */
const RATES: readonly [rate: number, mbps: number, mult?: number][] = [
  [c.IBV_RATE_2_5_GBPS, 2500, 1],
  [c.IBV_RATE_5_GBPS, 5000, 2],
  [c.IBV_RATE_10_GBPS, 10_000, 4],
  [c.IBV_RATE_14_GBPS, 14_062],
  [c.IBV_RATE_20_GBPS, 20_000, 8],
  [c.IBV_RATE_25_GBPS, 25_781],
  [c.IBV_RATE_28_GBPS, 28_125, 11],
  [c.IBV_RATE_30_GBPS, 30_000, 12],
  [c.IBV_RATE_40_GBPS, 40_000, 16],
  [c.IBV_RATE_50_GBPS, 53_125, 20],
  [c.IBV_RATE_56_GBPS, 56_250],
  [c.IBV_RATE_60_GBPS, 60_000, 24],
  [c.IBV_RATE_80_GBPS, 80_000, 32],
  [c.IBV_RATE_100_GBPS, 103_125],
  [c.IBV_RATE_112_GBPS, 112_500],
  [c.IBV_RATE_120_GBPS, 120_000, 48],
  [c.IBV_RATE_168_GBPS, 168_750],
  [c.IBV_RATE_200_GBPS, 206_250],
  [c.IBV_RATE_300_GBPS, 309_375],
  [c.IBV_RATE_400_GBPS, 425_000, 160],
  [c.IBV_RATE_600_GBPS, 637_500, 240],
  [c.IBV_RATE_800_GBPS, 850_000, 320],
  [c.IBV_RATE_1200_GBPS, 1_275_000, 480],
];

/** ibv_rate_to_mbps(3): Mbit/s; −1 for IBV_RATE_MAX and for a number that is no rate. */
export function ibv_rate_to_mbps(rate: number): number {
  return RATES.find(([each]) => each === rate)?.[1] ?? -1;
}

/** mbps_to_ibv_rate(3): the rate of exactly so many Mbit/s, or IBV_RATE_MAX. */
export function mbps_to_ibv_rate(mbps: number): number {
  return RATES.find(([, each]) => each === mbps)?.[0] ?? c.IBV_RATE_MAX;
}

/** ibv_rate_to_mult(3): the multiple of 2.5 Gbit/s; −1 for a rate that libibverbs gives none. */
export function ibv_rate_to_mult(rate: number): number {
  return RATES.find(([each]) => each === rate)?.[2] ?? -1;
}

/** mult_to_ibv_rate(3): the rate of exactly that multiple of 2.5 Gbit/s, or IBV_RATE_MAX. */
export function mult_to_ibv_rate(mult: number): number {
  return RATES.find(([, , each]) => each !== undefined && each === mult)?.[0] ?? c.IBV_RATE_MAX;
}
