import { readFileSync, readlinkSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { describe, expect, test } from 'vitest';

const outer = process.env.ROCE_OUTER_NETWORK;

describe.skipIf(outer === undefined)('a test file', () => {
  test('has a network of its own with nothing but a loopback interface in it', () => {
    expect(readlinkSync('/proc/self/ns/net')).not.toBe(outer);
    expect(Object.keys(networkInterfaces())).toEqual(['lo']);
  });

  test('has the privileges of whoever runs the tests', () => {
    const [, capabilities] = /^CapEff:\s*(\w+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))!;
    if (process.getuid!() === 0) expect(BigInt(`0x${capabilities}`)).toBeGreaterThan(0n);
    else expect(BigInt(`0x${capabilities}`)).toBe(0n);
  });
});
