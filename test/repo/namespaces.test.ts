import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { networkInterfaces, tmpdir } from 'node:os';
import { describe, expect, test } from 'vitest';

const outer = process.env.ROCE_OUTER_NETWORK;

describe.skipIf(outer === undefined)('a test file', () => {
  test('has a network with nothing but a loopback interface in it', () => {
    expect(readlinkSync('/proc/self/ns/net')).not.toBe(outer);
    expect(Object.keys(networkInterfaces())).toEqual(['lo']);
    expect(readdirSync('/sys/class/net')).toEqual(['lo']);
  });

  test('sees no processes of others', () => {
    const ids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
    expect(ids).toEqual(['1', `${process.pid}`]);
  });

  test('has an empty temporary folder', () => {
    expect(readdirSync(tmpdir())).toEqual([]);
  });

  test('has the privileges of the user who runs the tests', () => {
    const [, effective] = /^CapEff:\s*(\w+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))!;
    expect(BigInt(`0x${effective}`) > 0n).toBe(process.getuid!() === 0);
  });
});
