/** Commands for programs of libibverbs. */
import { oneOf, seconds, text } from '../options.ts';
import { bind, link, probes } from './shared.ts';
import type { CommandSpec } from './spec.ts';

export const programCommands: readonly CommandSpec[] = [
  {
    usage: 'run <program> [arguments...]',
    summary: 'Run an unmodified RDMA program (libibverbs, librdmacm) without RDMA hardware',
    description:
      'The program finds one RDMA device, roce0, which sends and receives RoCE v2 at one address or at all addresses of an interface. If ' +
      'no such device runs in this network namespace, roce run starts one, which ends ten seconds after its last program. Signals are ' +
      'passed on; the exit code is that of the program, or 128 + the number of its signal. No privilege and no kernel module are needed. ' +
      'With ROCE_DEBUG=1 in the environment, failed calls print the reason on stderr. Not possible: static programs, programs for musl, setuid programs of other users.',
    passThrough: true,
    options: [
      bind(
        'Local address of the device (default: all addresses of the first interface with IPv4, except lo)',
        'a',
        '--address',
      ),
      { flags: '--socket <path>', summary: 'Unix socket of a running device', parse: text },
      { ...probes, summary: `${probes.summary}. Only for a device that this command starts` },
      {
        flags: '--memory <way>',
        summary:
          'How the device accesses registered memory: auto (share it; attach memory that cannot be shared), attach, share',
        parse: oneOf('auto', 'attach', 'share'),
        fallback: 'auto',
      },
    ],
    examples: [
      ['run ibv_devinfo -v', 'Look at the device'],
      ['run -a 127.0.0.2 ibv_rc_pingpong -g 0', 'Run a server at a loopback address'],
      ['run -a 127.0.0.3 -- ibv_rc_pingpong -g 0 127.0.0.1', 'Run its client at another address'],
    ],
    load: () => import('../commands/run.ts'),
  },
  {
    usage: 'device',
    summary: 'Run a device for the programs of roce run',
    description:
      'Runs an RDMA device in software. Programs of this user (roce run) use the device over a Unix socket. Each program has its own objects, which are destroyed when the program ' +
      'ends. A line on stderr names each program that connects or ends.',
    options: [
      bind(
        'Local address of the device (default: all addresses of the first interface with IPv4, except lo)',
        'a',
        '--address',
      ),
      {
        flags: '--socket <path>',
        summary: 'Unix socket to make (default: where roce run looks for it)',
        parse: text,
      },
      {
        flags: '--trace <file>',
        summary: 'Write every packet of the device into this file (pcapng)',
        parse: text,
      },
      link,
      probes,
      {
        flags: '--idle <seconds>',
        summary: 'End when no program has been connected for this long',
        parse: seconds,
      },
    ],
    examples: [
      ['device -a 192.0.2.1', 'Run a device at an address of this machine'],
      ['device --idle 60', 'End a minute after the last program'],
    ],
    opensDevices: true,
    load: () => import('../commands/device.ts'),
  },
];
