/** Errors that a caller caused, with the wrong value and the expected ones. */

/** `errno` names that verbs return (man pages of ibv_*(3)). */
export type Errno =
  | 'EINVAL'
  | 'ENOMEM'
  | 'EBUSY'
  | 'EOPNOTSUPP'
  | 'ENOENT'
  | 'EADDRINUSE'
  | 'EADDRNOTAVAIL'
  | 'EMSGSIZE'
  | 'ENOTCONN'
  | 'ECONNREFUSED'
  | 'ETIMEDOUT'
  | 'ECANCELED'
  | 'EPERM'
  | 'EIO'
  | 'EMFILE'
  | 'EAGAIN'
  | 'EBADF'
  | 'EFAULT';

export interface RoceErrorOptions {
  errno: Errno;
  /** The attribute at fault, where there is one: `pathMtu`, `ahAttr.grh.dgid`. */
  attribute?: string;
  /** The values that would have been accepted. */
  expected?: string;
  cause?: unknown;
}

/**
 * The error that every call of the public API throws or rejects with.
 * `code` is stable and starts with `ERR_ROCE_`; `errno` is the name that the verb of the same name
 * would return.
 */
export class RoceError extends Error {
  /** For messages. */
  override readonly name = 'RoceError';
  /** `ERR_ROCE_…`; stable. */
  readonly code: string;
  /** The errno of the verb of that name: `EINVAL`. */
  readonly errno: Errno;
  /** The attribute at fault, where there is one: `pathMtu`, `ahAttr.grh.dgid`. */
  readonly attribute: string | undefined;
  /** The values that would have been accepted. */
  readonly expected: string | undefined;

  constructor(code: string, message: string, options: RoceErrorOptions) {
    super(
      options.expected === undefined ? message : `${message} (expected ${options.expected})`,
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.code = code;
    this.errno = options.errno;
    this.attribute = options.attribute;
    this.expected = options.expected;
  }
}

/** An argument that can't be taken: EINVAL, naming the attribute. */
export function invalid(attribute: string, message: string, expected?: string): RoceError {
  return new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `${attribute}: ${message}`, {
    errno: 'EINVAL',
    attribute,
    ...(expected === undefined ? {} : { expected }),
  });
}

/** A broken invariant of our own: nobody's input can lead here. Fails at once. */
export class RoceBug extends Error {
  override readonly name = 'RoceBug';
}
