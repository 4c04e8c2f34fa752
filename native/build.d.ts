/** The sources that the addon has to be built from. */
export const BUILD: string;
