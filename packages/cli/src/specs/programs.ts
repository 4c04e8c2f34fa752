/** Commands for programs of libibverbs. */
import { oneOf, seconds, text } from '../options.ts';
import { link, probes } from './shared.ts';
import type { CommandSpec } from './spec.ts';

export const programCommands: readonly CommandSpec[] = [
  {
    usage: 'run <program> [arguments...]',
    summary: 'Run a program of libibverbs or librdmacm, unmodified, on a device in software',
    description:
      'The program finds one RDMA device, roce0, which sends and receives RoCE v2 at all addresses of an interface, or at one. Where ' +
      'no such device runs in this network namespace, one is started, and ends ten seconds after its last program. Signals are passed on; the exit code is that ' +
      'of the program, 128 + number for a signal. Static programs, programs with musl, and setuid programs of other users ' +
      'cannot be run. No privilege and no kernel module are needed.',
    passThrough: true,
    options: [
      {
        flags: '-a, --address <address>',
        summary:
          'The one address of the device (default: all addresses of the first interface but lo with IPv4)',
        parse: text,
      },
      { flags: '--socket <path>', summary: 'Unix socket of a device that runs', parse: text },
      { ...probes, summary: `${probes.summary}; of a device that is started here` },
      {
        flags: '--memory <way>',
        summary:
          'How the device reaches registered memory: auto (share it, attach what cannot be shared), attach, share',
        parse: oneOf('auto', 'attach', 'share'),
        fallback: 'auto',
      },
    ],
    examples: [
      ['run ibv_devinfo -v', 'Look at the device'],
      ['run -a 127.0.0.2 ibv_rc_pingpong -g 0', 'Run a server at an address of the loopback'],
      ['run -a 127.0.0.3 -- ibv_rc_pingpong -g 0 127.0.0.1', 'Run its client at another one'],
    ],
    load: () => import('../commands/run.ts'),
  },
  {
    usage: 'device',
    summary: 'Serve a device to the programs that roce run starts',
    description:
      'Programs of this user reach it over a Unix socket. Each has objects of its own, which go when the program goes. ' +
      'A line on stderr names each program that comes or goes.',
    options: [
      {
        flags: '-a, --address <address>',
        summary:
          'The one address of the device (default: all addresses of the first interface but lo with IPv4)',
        parse: text,
      },
      {
        flags: '--socket <path>',
        summary: 'Unix socket to make (default: one that roce run knows)',
        parse: text,
      },
      {
        flags: '--trace <file>',
        summary: 'Write every packet of the device into this file (pcapng)',
        parse: text,
      },
      link,
      probes,
      { flags: '--idle <seconds>', summary: 'End when no program is there for this long', parse: seconds },
    ],
    examples: [
      ['device -a 192.0.2.1', 'Serve a device at an address of this machine'],
      ['device --idle 60', 'End a minute after the last program'],
    ],
    opensDevices: true,
    load: () => import('../commands/device.ts'),
  },
];
