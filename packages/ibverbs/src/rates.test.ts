import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import * as v from './index.ts';

/** The answers of libibverbs itself, a line each: the functions that are plain arithmetic need no device. */
const PROGRAM = `#include <infiniband/verbs.h>
#include <stdio.h>
int main(void) {
  for (int i = -1; i < 30; i++) printf("rate %d %d %d\\n", i, ibv_rate_to_mbps(i), ibv_rate_to_mult(i));
  for (int i = 0; i < 500; i++) printf("mult %d %d 0\\n", i, mult_to_ibv_rate(i));
  for (int i = 2500; i <= 1275000; i++) if (mbps_to_ibv_rate(i) != IBV_RATE_MAX) printf("mbps %d %d 0\\n", i, mbps_to_ibv_rate(i));
  for (int i = 0; i < (1 << 20); i += 997) printf("port %d %d 0\\n", i, ibv_flow_label_to_udp_sport(i));
  return 0;
}
`;

test.skipIf(!existsSync('/usr/include/infiniband/verbs.h'))(
  'rates and source ports are those of libibverbs',
  () => {
    const folder = mkdtempSync(join(tmpdir(), 'ibverbs-rates-'));
    try {
      writeFileSync(join(folder, 'print.c'), PROGRAM);
      execFileSync('cc', ['-w', '-o', join(folder, 'print'), join(folder, 'print.c'), '-libverbs']);
      const lines = execFileSync(join(folder, 'print'), { encoding: 'utf8' }).trim().split('\n');
      const ours: Record<string, (value: number) => [number, number]> = {
        rate: (rate) => [v.ibv_rate_to_mbps(rate), v.ibv_rate_to_mult(rate)],
        mult: (mult) => [v.mult_to_ibv_rate(mult), 0],
        mbps: (mbps) => [v.mbps_to_ibv_rate(mbps), 0],
        port: (label) => [v.ibv_flow_label_to_udp_sport(label), 0],
      };
      expect(lines.length).toBeGreaterThan(1500);
      expect(lines.filter((line) => line.startsWith('mbps'))).toHaveLength(23);
      for (const line of lines) {
        const [kind, value] = line.split(' ');
        expect(`${kind} ${value} ${ours[kind](Number(value)).join(' ')}`).toBe(line);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
);

test('rates go to numbers and back', () => {
  expect(v.ibv_rate_to_mbps(v.IBV_RATE_5_GBPS)).toBe(5000);
  expect(v.mbps_to_ibv_rate(5000)).toBe(v.IBV_RATE_5_GBPS);
  expect(v.mbps_to_ibv_rate(5001)).toBe(v.IBV_RATE_MAX);
  expect(v.ibv_rate_to_mult(v.IBV_RATE_MAX)).toBe(-1);
});
