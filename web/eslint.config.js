import js from "@eslint/js";
import i18next from "eslint-plugin-i18next";
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

/** Forbids imports whose address matches, also those that are loaded later by `import()`. */
const noImportsOf = (patterns) => ({
  "no-restricted-imports": ["error", { patterns }],
  "no-restricted-syntax": [
    "error",
    // A selector takes no slash inside a regular expression
    ...patterns.map(({ regex, message }) => ({ selector: `ImportExpression > Literal[value=/${regex.replaceAll("/", "\\u002f")}/]`, message })),
  ],
});

/** Forbids imports from the named folders of `src`, wherever the importing file is. */
const noImportsFrom = (folders, message) => noImportsOf([{ regex: `^\\.{1,2}/(?:.*/)?(?:${folders.join("|")})/`, message }]);

/** Forbids a file of a feature, `depth` folders below it, to import from outside of it what is not in `lib` or `components`. */
const featureImports = (depth) => ({
  files: [`src/features/*/${"*/".repeat(depth)}*`],
  ignores: ["**/*.test.*"],
  rules: noImportsOf([
    {
      regex: `^(?:\\.\\./){${depth + 1}}(?!\\.\\./)`,
      message: "A feature imports nothing of another one. Move what they share to components/ or lib/.",
    },
    { regex: "/(?:features|routes)/", message: "A feature imports nothing of another one, and no route." },
  ]),
});

export default tseslint.config(
  { ignores: ["dist/", "public/", "src/paraglide/"] },
  js.configs.recommended,
  {
    files: ["**/*.{ts,tsx}"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { "react-hooks": reactHooks },
    rules: {
      ...reactHooks.configs.recommended.rules,
      // Event handlers may be async: React ignores what they return, and each of ours handles its own failure.
      "@typescript-eslint/no-misused-promises": ["error", { checksVoidReturn: { attributes: false } }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/consistent-type-definitions": "off",
      "no-console": ["error", { allow: ["error", "warn"] }],
    },
  },
  // Imports go one way: routes → features → components → lib. Tests render the whole application.
  {
    files: ["src/lib/**"],
    ignores: ["**/*.test.*"],
    rules: noImportsFrom(["components", "features", "routes"], "lib/ is below components, features and routes."),
  },
  {
    files: ["src/components/**"],
    ignores: ["**/*.test.*"],
    rules: noImportsFrom(["features", "routes"], "components/ is below features and routes."),
  },
  ...[0, 1, 2].map(featureImports),
  // Every sentence is in src/locales. Attributes are checked by what they can hold: those with a text for the user.
  {
    files: ["src/**/*.tsx"],
    ignores: ["**/*.test.*", "src/testing/**"],
    plugins: { i18next },
    rules: {
      "i18next/no-literal-string": [
        "error",
        {
          mode: "jsx-only",
          "jsx-attributes": {
            include: ["^aria-label$", "^alt$", "^title$", "^label$", "^lead$", "^hint$", "^description$", "^placeholder$", "^action$", "^status$"],
          },
          words: { exclude: ["^[^A-Za-z]*$", "^Google$"] },
        },
      ],
    },
  },
);
